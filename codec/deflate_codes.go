package codec

import (
	"math/bits"
	"slices"
	"sync"
)

// codes are the codes of a block: of each symbol the code in its lower bits, as it is sent, and its
// length above; 0 for a symbol without one.
type codes struct {
	lit  [maxLit]uint32
	dist [maxDist]uint32
	// length is of each length less three the code with the bits that follow it, and above how many that are.
	length [maxLength - 2]uint32
	rate   int // bits for a KiB of the records that they were made for; 0: they are for those alone
}

const (
	codeBits   = 16
	codeMask   = 1<<codeBits - 1
	lengthBits = maxCode + 5
	lengthMask = 1<<lengthBits - 1
	endOfBlock = 256
	usedLit    = 286 // symbols of literals, the end and lengths; of distances
	usedDist   = 30
	fixedEnd   = 7 // bits of the end of a block in the codes of the format
)

var codesPool = sync.Pool{New: func() any { return new(codes) }}

func newCodes(like *codes) *codes {
	c := codesPool.Get().(*codes)
	c.lit, c.dist, c.rate = like.lit, like.dist, like.rate
	c.join()
	return c
}

// join makes the table of lengths from the codes of their symbols.
func (c *codes) join() {
	for i, l := range lengthSymbol {
		code := c.lit[l&0x1ff]
		size, extra := code>>codeBits, uint32(l>>9)
		c.length[i] = code&codeMask | uint32(i)&(1<<extra-1)<<size | (size+extra)<<lengthBits
	}
}

func (c *codes) free() {
	if c != nil && c != fixedCodes() {
		codesPool.Put(c)
	}
}

// fixedCodes are those that the format names.
var fixedCodes = sync.OnceValue(func() *codes {
	c := new(codes)
	lits, dists := fixedSizes()
	assign(c.lit[:], lits)
	assign(c.dist[:], dists)
	c.join()
	return c
})

// whole reports whether all symbols have codes.
func (c *codes) whole() bool { return c.rate > 0 || c == fixedCodes() }

// size is how many bits the symbols take, without those that follow codes of lengths
// and distances; not ok if one has no code.
func (c *codes) size(n *counts) (size int, ok bool) {
	ok = true
	for s, k := range n.lit[:usedLit] {
		e := c.lit[s] >> codeBits
		size += int(k) * int(e)
		ok = ok && (k == 0 || e > 0)
	}
	for s, k := range n.dist[:usedDist] {
		e := c.dist[s] >> codeBits
		size += int(k) * int(e)
		ok = ok && (k == 0 || e > 0)
	}
	return size, ok
}

// oneOfMany is from how many bytes of records on codes are made for what follows as well: every
// symbol gets one.
const oneOfMany = 8 << 10

// build makes the codes that suit the counts of n bytes of records, and the head of their block.
func (d *deflater) build(n int) {
	d.trial = codes{}
	var sizes [usedLit + usedDist]uint8
	d.lengths(sizes[:usedLit], d.count.lit[:usedLit], maxCode, n >= oneOfMany)
	d.lengths(sizes[usedLit:], d.count.dist[:usedDist], maxCode, n >= oneOfMany)
	assign(d.trial.lit[:], sizes[:usedLit])
	assign(d.trial.dist[:], sizes[usedLit:])
	lits, dists := usedLit, usedDist
	for sizes[lits-1] == 0 { // that of the end is not
		lits--
	}
	for dists > 1 && sizes[usedLit+dists-1] == 0 {
		dists--
	}
	copy(sizes[lits:], sizes[usedLit:usedLit+dists])
	d.head.make(d, sizes[:lits+dists], lits, dists)
}

// lengths finds the lengths of codes, at most so many bits, by which symbols that are used as often
// as counted take the fewest bits (Huffman). With all, those that are not used get
// a code too, as if they were four times rarer than once.
func (d *deflater) lengths(sizes []uint8, count []uint32, most int, all bool) {
	order := d.order[:0]
	for s, n := range count {
		switch {
		case all:
			order = append(order, uint64(4*n+1)<<16|uint64(s))
		case n > 0:
			order = append(order, uint64(n)<<16|uint64(s))
		}
	}
	clear(sizes)
	if len(order) < 2 {
		for _, o := range order {
			sizes[o&0xffff] = 1
		}
		return
	}
	slices.Sort(order)
	var depths [maxLit]uint32
	depth := depths[:len(order)]
	for i, o := range order {
		depth[i] = uint32(o >> 16)
	}
	moffat(depth)
	var ofSize [maxLit]int
	for _, n := range depth {
		ofSize[n]++
	}
	shorten(ofSize[:], most)
	at := len(order)
	for size := 1; size <= most; size++ {
		for range ofSize[size] {
			at--
			sizes[order[at]&0xffff] = uint8(size)
		}
	}
}

// moffat turns weights, the least first, into the depths of their leaves in a tree of
// least weight, in their place (Moffat and Katajainen, "In-place calculation of
// minimum-redundancy codes", 1995).
func moffat(a []uint32) {
	n := len(a)
	a[0] += a[1]
	root, leaf := 0, 2
	for next := 1; next < n-1; next++ {
		// The two lightest of inner nodes and leaves become children of the next one.
		if leaf >= n || a[root] < a[leaf] {
			a[next] = a[root]
			a[root] = uint32(next)
			root++
		} else {
			a[next] = a[leaf]
			leaf++
		}
		if leaf >= n || root < next && a[root] < a[leaf] {
			a[next] += a[root]
			a[root] = uint32(next)
			root++
		} else {
			a[next] += a[leaf]
			leaf++
		}
	}
	// From parents to depths of inner nodes, then of leaves.
	a[n-2] = 0
	for next := n - 3; next >= 0; next-- {
		a[next] = a[a[next]] + 1
	}
	free, used, depth := 1, 0, uint32(0)
	inner, next := n-2, n-1
	for free > 0 {
		for inner >= 0 && a[inner] == depth {
			used++
			inner--
		}
		for free > used {
			a[next] = depth
			next--
			free--
		}
		free, used = 2*used, 0
		depth++
	}
}

// shorten makes a code of codes of which some are too long: those become as long as codes may
// be, and as many shorter ones longer as it takes.
func shorten(ofSize []int, most int) {
	total := 0
	for size := len(ofSize) - 1; size > 0; size-- {
		if size > most {
			ofSize[most] += ofSize[size]
			ofSize[size] = 0
			continue
		}
		total += ofSize[size] << (most - size)
	}
	for ; total > 1<<most; total-- {
		ofSize[most]--
		for size := most - 1; ; size-- {
			if ofSize[size] > 0 {
				ofSize[size]--
				ofSize[size+1] += 2
				break
			}
		}
	}
}

// assign gives symbols their codes by the lengths of those.
func assign(table []uint32, sizes []uint8) {
	var next [maxCode + 2]uint32
	for _, size := range sizes {
		if size > 0 {
			next[size+1]++
		}
	}
	code := uint32(0)
	for size := 1; size <= maxCode; size++ {
		code = (code + next[size]) << 1
		next[size] = code
	}
	for s, size := range sizes {
		if size > 0 {
			table[s] = uint32(size)<<codeBits | uint32(bits.Reverse16(uint16(next[size])))>>(16-size)
			next[size]++
		}
	}
}

// blockHead is the head of a block with codes of its own.
type blockHead struct {
	bits        int // of all of it but for the first three
	lits, dists int
	sent        int        // lengths of the codes of lengths that are sent
	metas       [19]uint32 // codes of the symbols of lengths
	symbols     []uint16   // what is sent of the lengths: the symbol, and above it what follows
}

// metaExtra is how many bits follow the symbols 16 to 18.
var metaExtra = [19]uint8{16: 2, 17: 3, 18: 7}

// make finds how to send the lengths of the codes.
func (h *blockHead) make(d *deflater, sizes []uint8, lits, dists int) {
	h.lits, h.dists, h.symbols = lits, dists, h.symbols[:0]
	var count [19]uint32
	add := func(symbol, extra int) {
		count[symbol]++
		h.symbols = append(h.symbols, uint16(symbol|extra<<8))
	}
	for i := 0; i < len(sizes); {
		size := sizes[i]
		run := 1
		for i+run < len(sizes) && sizes[i+run] == size {
			run++
		}
		i += run
		if size > 0 {
			add(int(size), 0)
			run--
		}
		for run >= 3 {
			switch {
			case size > 0:
				n := min(run, 6)
				add(16, n-3)
				run -= n
			case run > 10:
				n := min(run, 138)
				add(18, n-11)
				run -= n
			default:
				add(17, run-3)
				run = 0
			}
		}
		for range run {
			add(int(size), 0)
		}
	}
	var meta [19]uint8
	d.lengths(meta[:], count[:], 7, false)
	h.metas = [19]uint32{}
	assign(h.metas[:], meta[:])
	h.sent = 19
	for h.sent > 4 && meta[metaOrder[h.sent-1]] == 0 {
		h.sent--
	}
	h.bits = 14 + 3*h.sent
	for s, n := range count {
		h.bits += int(n) * int(meta[s]+metaExtra[s])
	}
}

// write appends the head. There is room.
func (h *blockHead) write(s *deflation) {
	s.put(2<<1, 3)
	s.put(uint64(h.lits-257|(h.dists-1)<<5|(h.sent-4)<<10), 14)
	for _, symbol := range metaOrder[:h.sent] {
		s.put(uint64(h.metas[symbol]>>codeBits), 3)
	}
	for _, e := range h.symbols {
		symbol := e & 0xff
		c := h.metas[symbol]
		s.put(uint64(c&codeMask), uint(c>>codeBits))
		s.put(uint64(e>>8), uint(metaExtra[symbol]))
	}
}
