/* Stands in for the agent: it has relocations, zeroed data and a start that writes into the segment. */
struct start {
	unsigned long segment, shadow;
	unsigned way, abi;
};
static volatile unsigned long kept[600];
unsigned long (*self)(struct start *);
unsigned long wh_start(struct start *s);
static unsigned long (*table[])(struct start *) = { wh_start };

unsigned long wh_start(struct start *s)
{
	kept[599] = s->segment;
	self = wh_start;
	if (table[0] != self)
		return 2;
	*(unsigned long *)s->segment += s->way;
	return s->abi != 7;
}
