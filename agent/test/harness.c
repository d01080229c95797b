/* What the C tests of the agent share: a segment, the unwind rows of the program, and
 * counts of failures. */
#include "harness.h"
#include <sys/auxv.h>

char *seg;
void *agent;
int failures;
static u32 n_rows;

/* ---- .eh_frame to rows ---- */
struct state {
	u64 cfa_reg, cfa_off;
	int cfa_ok, ra_undefined, rbp_kind; /* 0 same, 1 saved, 2 unknown */
	s64 rbp_off;
};
static u64 uleb(const u8 **p) { u64 r = 0; int s = 0; u8 b; do { b = *(*p)++; r |= (u64)(b & 127) << s; s += 7; } while (b & 128); return r; }
static s64 sleb(const u8 **p) { s64 r = 0; int s = 0; u8 b; do { b = *(*p)++; r |= (s64)(b & 127) << s; s += 7; } while (b & 128); if (s < 64 && (b & 64)) r |= -(1ll << s); return r; }
static u32 pack(const struct state *s, int signal)
{
	if (signal) return WH_RULE_SIGNAL;
	if (s->ra_undefined) return WH_RULE_END;
	if (!s->cfa_ok || s->rbp_kind == 2 || s->cfa_off % 8 || s->cfa_off / 8 > 0x3fff) return WH_RULE_NONE;
	u32 kind = s->cfa_reg == 7 ? WH_RULE_RSP : s->cfa_reg == 6 ? WH_RULE_RBP : 0;
	if (!kind) return WH_RULE_NONE;
	u32 r = kind | (u32)(s->cfa_off / 8) << 3;
	if (s->rbp_kind == 1) r |= 1u << 17 | (u32)(s->rbp_off / 8) << 18;
	return r;
}
static void row(u64 base, u64 at, u32 rule)
{
	struct wh_row *rows = (struct wh_row *)(seg + WH_AT_ROWS);
	rows[n_rows++] = (struct wh_row){(u32)(at - base), rule};
}
static void run(const u8 *p, const u8 *end, struct state *s, const struct state *init, u64 caf, s64 daf, u64 *pc, u64 base, int emit, int signal)
{
	struct state stack[16];
	int depth = 0;
	while (p < end) {
		u8 op = *p++;
		u64 r, adv = 0;
		int moved = 0;
		switch (op >> 6) {
		case 1: adv = op & 63; moved = 1; break;
		case 2: r = uleb(&p); if ((op & 63) == 6) { s->rbp_kind = 1; s->rbp_off = (s64)r * daf; } if ((op & 63) == 16) s->ra_undefined = 0; break;
		case 3: if ((op & 63) == 6) { s->rbp_kind = init->rbp_kind; s->rbp_off = init->rbp_off; } break;
		default:
			switch (op) {
			case 0: break;
			case 2: adv = *p++; moved = 1; break;
			case 3: adv = *(uint16_t *)p; p += 2; moved = 1; break;
			case 4: adv = *(u32 *)p; p += 4; moved = 1; break;
			case 5: r = uleb(&p); { s64 o = (s64)uleb(&p) * daf; if (r == 6) { s->rbp_kind = 1; s->rbp_off = o; } } break;
			case 6: r = uleb(&p); if (r == 6) { s->rbp_kind = init->rbp_kind; s->rbp_off = init->rbp_off; } break;
			case 7: r = uleb(&p); if (r == 16) s->ra_undefined = 1; if (r == 6) s->rbp_kind = 0; break;
			case 8: r = uleb(&p); if (r == 6) s->rbp_kind = 0; break;
			case 9: r = uleb(&p); uleb(&p); if (r == 6) s->rbp_kind = 2; break;
			case 10: if (depth < 16) stack[depth++] = *s; break;
			case 11: if (depth) *s = stack[--depth]; break;
			case 12: s->cfa_reg = uleb(&p); s->cfa_off = uleb(&p); s->cfa_ok = 1; break;
			case 13: s->cfa_reg = uleb(&p); break;
			case 14: s->cfa_off = uleb(&p); break;
			case 15: r = uleb(&p); p += r; s->cfa_ok = 0; break;
			case 16: case 0x16: { u64 reg = uleb(&p); r = uleb(&p); p += r; if (reg == 6) s->rbp_kind = 2; break; }
			case 0x11: r = uleb(&p); { s64 o = sleb(&p) * daf; if (r == 6) { s->rbp_kind = 1; s->rbp_off = o; } if (r == 16) s->cfa_ok = 0; } break;
			case 0x14: uleb(&p); uleb(&p); break;
			case 0x2e: uleb(&p); break;
			default: s->cfa_ok = 0; return;
			}
		}
		if (moved) {
			if (emit && adv) row(base, *pc, pack(s, signal));
			*pc += adv * caf;
		}
	}
}
static u64 pointer(const u8 **p, u8 enc)
{
	const u8 *at = *p;
	u64 v = 0;
	switch (enc & 15) {
	case 0: case 4: case 12: v = *(u64 *)at; *p += 8; break;
	case 3: v = *(u32 *)at; *p += 4; break;
	case 11: v = (u64)(s64) * (int32_t *)at; *p += 4; break;
	default: abort();
	}
	if ((enc & 0x70) == 0x10 && v) v += (u64)at;
	return v;
}
static int by_offset(const void *a, const void *b)
{
	const struct wh_row *x = (const struct wh_row *)a, *y = (const struct wh_row *)b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}
static void eh_frame(const u8 *p, u64 base)
{
	while (*(u32 *)p) {
		u32 len = *(u32 *)p;
		const u8 *body = p + 4, *end = body + len;
		p = end;
		u32 id = *(u32 *)body;
		if (!id) continue;
		const u8 *cie = body - id, *c = cie + 9, *f = body + 4;
		const u8 *cend = cie + 4 + *(u32 *)cie;
		const char *aug = (const char *)c;
		c += strlen(aug) + 1;
		u64 caf = uleb(&c); s64 daf = sleb(&c); uleb(&c);
		u8 enc = 0; int signal = 0;
		if (aug[0] == 'z') {
			u64 n = uleb(&c); const u8 *a = c;
			for (const char *k = aug + 1; *k; k++) {
				if (*k == 'R') enc = *a++;
				else if (*k == 'L') a++;
				else if (*k == 'P') { u8 e = *a++; pointer(&a, e & 0x7f); }
				else if (*k == 'S') signal = 1;
			}
			c += n;
		}
		u64 start = pointer(&f, enc), size = pointer(&f, enc & 15);
		if (aug[0] == 'z') { u64 n = uleb(&f); f += n; }
		struct state s = {.cfa_ok = 0}, init;
		u64 pc = start;
		run(c, cend, &s, &s, caf, daf, &pc, base, 0, signal);
		init = s;
		run(f, end, &s, &init, caf, daf, &pc, base, 1, signal);
		row(base, pc, pack(&s, signal));
		row(base, start + size, WH_RULE_NONE);
	}
}
static int module(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size; (void)arg;
	struct wh_module *m = (struct wh_module *)(seg + WH_AT_MODULES) + HEADER->n_modules;
	u64 lo = ~0ull, hi = 0; const u8 *hdr = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		if (h->p_type == PT_LOAD) {
			if (h->p_vaddr < lo) lo = h->p_vaddr;
			if (h->p_vaddr + h->p_memsz > hi) hi = h->p_vaddr + h->p_memsz;
		}
		if (h->p_type == PT_GNU_EH_FRAME) hdr = (const u8 *)(info->dlpi_addr + h->p_vaddr);
	}
	if (!hdr) return 0;
	const u8 *q = hdr + 4;
	u64 frame = pointer(&q, hdr[1]);
	m->start = info->dlpi_addr + lo; m->end = info->dlpi_addr + hi; m->base = info->dlpi_addr;
	m->first_row = n_rows;
	eh_frame((const u8 *)frame, m->base);
	struct wh_row *rows = (struct wh_row *)(seg + WH_AT_ROWS) + m->first_row;
	m->n_rows = n_rows - m->first_row; m->flags = 2;
	/* "end of function" rows come after a begin at the same place: a stable order is needed */
	for (u32 i = 0; i < m->n_rows; i++) rows[i].offset = rows[i].offset * 2 + (rows[i].rule != 0);
	qsort(rows, m->n_rows, sizeof *rows, by_offset);
	for (u32 i = 0; i < m->n_rows; i++) rows[i].offset /= 2;
	m->state = 1;
	HEADER->n_modules++;
	return 0;
}

static u64 end_of_stack(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long long end = 0;
	char line[512];

	while (maps && fgets(line, sizeof line, maps))
		if (strstr(line, "[stack]")) sscanf(line, "%*x-%llx", &end);
	if (maps) fclose(maps);
	return end;
}

void setup(const char *so)
{
	setvbuf(stdout, 0, _IONBF, 0);
	int fd = memfd_create("whither", 0);
	if (ftruncate(fd, WH_SEGMENT_BYTES)) abort();
	seg = (char *)mmap(0, WH_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (seg == MAP_FAILED) { perror("segment"); exit(2); }
	agent = dlopen(so, RTLD_NOW);
	if (!agent) { puts(dlerror()); exit(2); }
	struct wh_header *h = HEADER;
	h->magic = WH_AGENT_MAGIC; h->abi = WH_AGENT_ABI; h->bytes = WH_SEGMENT_BYTES;
	u64 t0 = now_ns(), c0 = __builtin_ia32_rdtsc();
	while (now_ns() - t0 < 20000000) {}
	h->tsc_shift = 32; h->tsc_mult = (u64)(((unsigned __int128)(now_ns() - t0) << 32) / (__builtin_ia32_rdtsc() - c0));
	h->n_points = 1; h->recursion = 64; h->depth = 64;
	/* Some sites fit into a unit of a frame, the others do not. */
	h->next_site = WH_FRAME_SITE - 18;
	h->next_path = h->next_page = 1; h->next_frame = WH_FIRST_FRAME;
	h->stack_end = end_of_stack();
	h->ahead = WH_AHEAD_LATER;
	h->enabled = 1;
	dl_iterate_phdr(module, 0);
	const char *way = getenv("WAY");
	struct wh_start s = {(u64)seg, (u64)(-0x100000000000ll + 0x10000), way ? (u32)atoi(way) : 1, WH_AGENT_ABI, getauxval(26) >> 1 & 1};
	u64 (*start)(struct wh_start *) = (u64(*)(struct wh_start *))dlsym(agent, "wh_start");
	u64 got = start(&s);
	if (got) { printf("wh_start: %llu\n", (unsigned long long)got); exit(2); }
}

static u8 *near(u64 a)
{
	static u8 *page; static u32 used;
	if (page && used + 128 <= 4096 && (u64)llabs((s64)((u64)page - a)) < 1u << 30) { used += 128; return page + used - 128; }
	for (u64 d = 0x100000; d < 0x60000000; d += 0x10000) {
		u8 *want = (u8 *)((a & ~4095ull) - d);
		u8 *p = (u8 *)mmap(want, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == want) { page = p; used = 128; return p; }
		if (p != MAP_FAILED) munmap(p, 4096);
	}
	abort();
}

static void write_text(u64 a, const u8 *b, int n)
{
	mprotect((void *)(a & ~4095ull), 8192, 7);
	memcpy((void *)a, b, n);
	mprotect((void *)(a & ~4095ull), 8192, 5);
}

u32 probe(void *function, u32 flags)
{
	u64 a = (u64)function;
	u8 *code = (u8 *)function;
	if (code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e) a += 4;
	struct wh_header *h = HEADER;
	u32 id = h->n_points++;
	struct wh_point *p = &POINTS[id];
	u8 *stub = near(a), *q = stub;
	u64 common = (u64)dlsym(agent, flags & WH_DO_EXIT ? "wh_entry_exit" : "wh_entry_only");
	*q++ = 0x68; memcpy(q, &id, 4); q += 4; *q++ = 0xff; *q++ = 0x25; memset(q, 0, 4); q += 4; memcpy(q, &common, 8); q += 8;
	q = (u8 *)(((u64)q + 15) & ~15ull);
	p->relocated = (u64)q;
	memcpy(p->original, (void *)a, 8); p->window = 5; p->address = (u64)function; p->skip = (u8)(a - (u64)function);
	memcpy(q, (void *)a, 5); q += 5;
	*q++ = 0xe9; int32_t back = (int32_t)(a + 5 - ((u64)q + 4)); memcpy(q, &back, 4);
	p->root = __atomic_fetch_add(&h->next_path, 1, __ATOMIC_SEQ_CST);
	PATH_FRAME[p->root] = WH_ROOT_FULL; PATH_POINT[p->root] = id;
	p->flags = flags; p->state = WH_POINT_ON; p->stub = (u64)stub;
	u8 jmp[5] = {0xe9}; int32_t to = (int32_t)((u64)stub - (a + 5)); memcpy(jmp + 1, &to, 4);
	write_text(a, jmp, 5);
	return id;
}

void unprobe(u32 id)
{
	struct wh_point *p = &POINTS[id];
	write_text(p->address + p->skip, p->original, 5);
	p->state = WH_POINT_GONE;
}

struct sums sums_of_path(u32 path)
{
	struct sums s = {0};
	for (u32 i = 0; i < HEADER->next_thread; i++) {
		u32 page = THREAD(i)->directory[path / 64];
		if (!page) continue;
		struct wh_block *b = (struct wh_block *)(seg + WH_AT_PAGES + (u64)page * 4096) + path % 64;
		s.calls += b->calls; s.wall += b->wall; s.cpu += b->cpu; s.value[0] += b->value[0]; s.value[1] += b->value[1];
		if (b->min && (!s.min || b->min < s.min)) s.min = b->min;
		if (b->max > s.max) s.max = b->max;
		if (b->extra) {
			struct wh_more *m = (struct wh_more *)(seg + WH_AT_PAGES + (u64)b->extra * 64);
			s.done += m->done;
			for (int k = 0; k < 64; k++) s.hist += m->hist[k];
		}
	}
	return s;
}

struct sums sums(u32 point)
{
	struct sums s = {0};
	for (u32 i = 1; i < HEADER->next_path; i++) {
		if (PATH_POINT[i] != point || !PATH_FRAME[i]) continue;
		struct sums p = sums_of_path(i);
		if (!p.calls) continue;
		s.calls += p.calls; s.wall += p.wall; s.cpu += p.cpu; s.done += p.done; s.hist += p.hist;
		s.value[0] += p.value[0]; s.value[1] += p.value[1]; s.paths++;
		if (p.min && (!s.min || p.min < s.min)) s.min = p.min;
		if (p.max > s.max) s.max = p.max;
	}
	return s;
}

u64 folded(u32 point)
{
	u64 all = 0;
	for (u32 i = 1; i < HEADER->next_path; i++) {
		u32 page = THREAD(0)->directory[i / 64];
		if (!page || PATH_POINT[i] != point) continue;
		struct wh_block *b = (struct wh_block *)(seg + WH_AT_PAGES + (u64)page * 4096) + i % 64;
		if (b->extra) all += ((struct wh_more *)(seg + WH_AT_PAGES + (u64)b->extra * 64))->folded;
	}
	return all;
}

u64 lost(int cause)
{
	u64 n = HEADER->lost[cause];
	for (u32 i = 0; i < HEADER->next_thread && cause < WH_LOST_OF_THREAD; i++) n += THREAD(i)->lost[cause];
	return n;
}

static u32 outside_of(u32 frame)
{
	u32 begin = frame - !!(FRAMES[frame] & WH_FRAME_WIDE), outside;

	memcpy(&outside, &FRAMES[begin - 2], 4);
	return FRAMES[frame] & WH_FRAME_FIRST ? outside : begin - 1;
}

static u32 site_of(u32 frame)
{
	u32 more = FRAMES[frame] & WH_FRAME_WIDE ? (FRAMES[frame - 1] & ~WH_FRAME_MORE) << WH_FRAME_LOW : 0;

	return more | (FRAMES[frame] & WH_FRAME_SITE);
}

int frames_of(u32 path, u64 *ra, u32 *root, int max)
{
	u32 frame = PATH_FRAME[path]; int out = 0;
	for (; frame >= WH_FIRST_FRAME && frame < WH_MAX_FRAMES; frame = outside_of(frame))
		if (out < max) ra[out++] = SITES[site_of(frame)].ra;
	if (root) *root = frame;
	return out;
}

int by_frame_pointers(u32 path)
{
	for (u32 frame = PATH_FRAME[path]; frame >= WH_FIRST_FRAME && frame < WH_MAX_FRAMES; frame = outside_of(frame))
		if (FRAMES[frame] & WH_FRAME_FP) return 1;
	return 0;
}

u32 joined(u32 path)
{
	u64 ra[1]; u32 root;
	frames_of(path, ra, &root, 1);
	return root & WH_ROOT_JOIN ? root & ~WH_ROOT_JOIN : 0;
}

int exact_path(u32 path, u64 *ra, int max)
{
	int n = 0;
	for (; path; path = joined(path)) n += frames_of(path, ra + n, 0, max - n);
	return n;
}

u64 now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}
