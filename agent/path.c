/*
 * From a return slot to a path id: the walk along the trie, and its growth. Equal return address means
 * equal rule, so comparing the addresses on the stack with a chain of nodes proves the whole path at
 * every call; only a new path asks the unwind tables. Constraints: other threads and processes add
 * nodes at the same time without locks; every word read lies in the known part of the stack; a walk
 * that cannot go on ends in a node that says so.
 *
 * A slot that holds our exit address belongs to a call in progress: its path is already known, the walk
 * ends with a JOIN. If its record was lost, its true address is in the shadow.
 */
#include "agent.h"

#define MOST_LEVELS 4096u

static u32 mix(u32 node, u64 ra)
{
	return (u32)((ra + (u64)node * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull >> 40);
}

static int is_child(u32 c, u32 node, u64 ra)
{
	const struct wh_node *n = node_at(c);

	return n->ra == ra && n->parent == node;
}

/* Searches the children of a node from `first` up to `end`. */
static u32 sibling(u32 first, u32 end, u64 ra)
{
	for (u32 c = first; c && c != end; c = node_at(c)->next_sibling)
		if (node_at(c)->ra == ra)
			return c;
	return 0;
}

static u32 node_new(void)
{
	struct wh_header *h = header();

	if (h->next_node >= WH_MAX_NODES)
		return 0;
	u32 n = __atomic_fetch_add(&h->next_node, 1, __ATOMIC_RELAXED);
	return n && n < WH_MAX_NODES ? n : 0;
}

static void fill(struct wh_node *child, u32 parent, u64 ra, int by_fp, int points_fp)
{
	const struct wh_node *up = node_at(parent);

	child->ra = ra;
	child->parent = parent;
	child->depth = (u16)(up->depth + 1);
	child->flags = by_fp ? WH_NODE_FP : 0;
	child->rule = WH_RULE_NONE;
	if (ra & WH_JOIN) {
		child->flags |= WH_NODE_JOIN;
		child->rule = WH_RULE_END;
	} else if (ra == WH_RA_UNREAD) {
		child->flags |= WH_NODE_TRUNCATED;
	} else if (ra == 0) {
		child->flags |= WH_NODE_END;
		child->rule = WH_RULE_END;
	} else {
		u32 rule = rule_of(ra, points_fp);

		if ((rule & 7) == WH_RULE_END || (rule & 7) == WH_RULE_SIGNAL)
			child->flags |= WH_NODE_END;
		else if ((rule & 7) == WH_RULE_NONE || child->depth >= header()->depth)
			child->flags |= WH_NODE_TRUNCATED, rule = WH_RULE_NONE;
		child->rule = rule;
	}
}

/* Links a new child, unless another thread was faster. 0: the table is full. */
static u32 grow(u32 node, u64 ra, int by_fp, int points_fp)
{
	u32 *first = &node_at(node)->first_child;
	u32 head = __atomic_load_n(first, __ATOMIC_ACQUIRE);
	u32 found = sibling(head, 0, ra);
	u32 c;

	if (found)
		return found;
	c = node_new();
	if (!c)
		return 0;
	fill(node_at(c), node, ra, by_fp, points_fp);
	for (;;) {
		u32 before = head;

		node_at(c)->next_sibling = head;
		if (__atomic_compare_exchange_n(first, &head, c, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return c;
		found = sibling(head, before, ra);
		if (found)
			return found;
	}
}

/* The child of `node` for `ra`, made if need be; 0: the table is full. */
static slow_path u32 child(struct local *l, const struct wh_point *p, u32 node, u64 ra, int by_fp)
{
	u32 *cached = &l->cache[mix(node, ra) % CACHE];

	if (!is_child(*cached, node, ra)) {
		if (by_fp && ra > WH_RA_UNREAD && !(ra & WH_JOIN) && !plausible(ra))
			ra = WH_RA_UNREAD;
		u32 c = grow(node, ra, by_fp, (p->flags & WH_DO_FP) != 0);
		if (!c)
			return 0;
		*cached = c;
	}
	l->hint[node % HINTS] = *cached;
	return *cached;
}

/* The innermost ancestor of a call, from path `at` on, that is a call of the same point. */
static u32 ancestor(u32 at, u32 point)
{
	while (at && path_at(at)->point != point)
		at = path_at(at)->parent;
	return at;
}

/* Point of a node: that of the root's path. */
static u32 point_of(u32 node)
{
	while (node_at(node)->parent)
		node = node_at(node)->parent;
	return path_at(node_at(node)->path)->point;
}

static u32 root_of(u32 node)
{
	while (node_at(node)->parent)
		node = node_at(node)->parent;
	return node_at(node)->path;
}

static u32 set_path(u32 node, u32 id)
{
	u32 none = 0;

	if (__atomic_compare_exchange_n(&node_at(node)->path, &none, id, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return id;
	return none;
}

/* A joined call at the limit of recursion is counted in its nearest ancestor of the same point; with
 * too many levels altogether in the point's own path. 0: it gets a path. */
static u32 folds_into(u32 node, u32 parent, u32 same)
{
	if (same && path_at(same)->same >= header()->recursion)
		return same;
	if (path_at(parent)->level + 1u >= MOST_LEVELS)
		return same ? same : root_of(node);
	return 0;
}

/* The path that ends at `node`, made now. */
slow_path u32 path_create(u32 node)
{
	struct wh_header *h = header();
	u32 point = point_of(node), parent = 0, same = 0, id;

	if (node_at(node)->flags & WH_NODE_JOIN) {
		parent = (u32)node_at(node)->ra;
		same = ancestor(parent, point);
		id = folds_into(node, parent, same);
		if (id)
			return set_path(node, id);
	}
	if (h->next_path >= WH_MAX_PATHS)
		return root_of(node);
	id = __atomic_fetch_add(&h->next_path, 1, __ATOMIC_RELAXED);
	if (!id || id >= WH_MAX_PATHS)
		return root_of(node);
	struct wh_path *path = path_at(id);
	path->point = point;
	path->parent = parent;
	path->same = same ? (u16)(path_at(same)->same + 1) : 0;
	path->level = parent ? (u16)(path_at(parent)->level + 1) : 0;
	path->node = node;
	u32 got = set_path(node, id);
	if (got != id)
		path->node = 0;
	return got;
}

/* Path of a call whose walk, at `node`, met the call in progress at `slot`; 0: no such record. */
static u32 join(struct local *l, const struct wh_point *p, u32 node, u64 slot)
{
	const struct wh_active *r = find_record(l, slot);
	u32 c, path;

	if (!r)
		return 0;
	l->trace.template.join_path = r->path;
	c = l->hint[node % HINTS];
	if (unlikely(!is_child(c, node, WH_JOIN | r->path))) {
		c = child(l, p, node, WH_JOIN | r->path, 0);
		if (!c)
			return root_path(p);
	}
	path = node_at(c)->path;
	if (unlikely(!path))
		path = path_create(c);
	return path_at(path)->node == c ? path : path | WH_FOLDED;
}

static u32 end_path(u32 node)
{
	u32 path = node_at(node)->path;

	return likely(path != 0) ? path : path_create(node);
}

/* The path of a call whose walk cannot go on above `node`. */
static slow_path u32 unread_path(struct local *l, const struct wh_point *p, u32 node)
{
	l->trace.usable = 0;
	u32 c = child(l, p, node, WH_RA_UNREAD, 0);

	return c ? end_path(c) : root_path(p);
}

/* Notes a word that the walk has relied on. */
static inline void note(struct trace *t, u64 offset, u64 value)
{
	struct shape *shape = &t->shape;

	if (unlikely(shape->words >= WORDS || offset > 1 << 30)) {
		t->usable = 0;
		return;
	}
	shape->offset[shape->words] = (s32)offset;
	t->template.value[shape->words++] = value;
}

/* Notes that a rule used rbp, which came from the word at `from`, or was live at entry (0). */
static inline void note_rbp(struct trace *t, u64 slot, u64 from, u64 rbp)
{
	struct template *to = &t->template;

	if (!from) {
		to->live = rbp - slot;
	} else if (to->relatives < RELATIVES) {
		to->relative[to->relatives].offset = from - slot;
		to->relative[to->relatives++].value = rbp - slot;
	} else {
		t->usable = 0;
	}
}

static u32 walk(struct local *l, const struct wh_point *p, u64 slot, u64 rbp)
{
	struct trace *t = &l->trace;
	u32 node = p->root;
	u64 s = slot, rbp_from = 0;
	int by_fp = 0;

	if (unlikely(node == 0 || node >= WH_MAX_NODES))
		return 0;
	for (;;) {
		u64 ra = *(const u64 *)s;
		u32 c = l->hint[node % HINTS];
		const struct wh_node *n = node_at(c);

		if (unlikely(n->ra != ra || n->parent != node)) {
			if (ra == G.exit) {
				u32 path = join(l, p, node, s);

				if (path) {
					note(t, s - slot, ra);
					t->template.join = s - slot + 1;
					return path;
				}
				t->usable = 0;
				ra = *(const u64 *)(s + WH_SHADOW);
			}
			c = child(l, p, node, ra, by_fp);
			if (!c)
				return root_path(p);
			n = node_at(c);
		}
		node = c;
		note(t, s - slot, ra);

		u32 rule = n->rule;
		u64 next;
		if (likely((rule & 7) == WH_RULE_RSP)) {
			next = s + (u64)(rule >> 3 & 0x3fff) * 8;
		} else if ((rule & 7) == WH_RULE_RBP) {
			next = rbp + (u64)(rule >> 3 & 0x3fff) * 8 - 8;
			note_rbp(t, slot, rbp_from, rbp);
		} else if ((rule & 7) == WH_RULE_FP) {
			if ((rbp & 7) || rbp <= s || rbp - s > 1 << 20 || !stack_reach(l, rbp + 8))
				return unread_path(l, p, node);
			next = rbp + 8;
		} else if ((rule & 7) == WH_RULE_BIG) {
			if (!big_step(rule, s, &rbp, slot, l->stack.top, &next))
				return unread_path(l, p, node);
		} else {
			return end_path(node);
		}
		if (unlikely(next - s - 1 >= l->stack.top - 8 - s) && (next <= s || !stack_reach(l, next)))
			return unread_path(l, p, node);
		if ((rule & 7) == WH_RULE_FP) {
			rbp = *(const u64 *)rbp;
			by_fp = 1;
			t->usable = 0;
		} else if ((rule & 7) == WH_RULE_BIG) {
			by_fp = 0;
			t->usable = 0;
		} else {
			by_fp = 0;
			if (rule & 1 << 17) {
				u64 saved = next + 8 + (u64)((s64)(s32)rule >> 18) * 8;

				if (unlikely(saved - slot >= l->stack.top - 7 - slot))
					return unread_path(l, p, node);
				rbp = *(const u64 *)saved;
				rbp_from = saved;
			}
		}
		s = next;
	}
}

/* The path of a call of `point` whose return slot is `slot`; 0: the point has no root. */
u32 find_path(struct local *l, const struct wh_point *p, u32 point, u64 slot, u64 rbp)
{
	struct trace *t = &l->trace;
	u32 path;

	t->usable = 1;
	t->shape.words = 0;
	t->template.relatives = 0;
	t->template.join = 0;
	t->template.live = ~0ull;
	path = walk(l, p, slot, rbp);
	if (path && t->usable)
		template_learn(l, point, slot, path);
	return path;
}
