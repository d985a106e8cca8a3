package codec

import "math/bits"

// table makes the table of a canonical code from the lengths of its symbols' codes,
// 0 for a symbol without one. The first 1<<look entries are chosen by the next bits; where
// codes are longer they lead to subtables behind. It reports false if the
// lengths are no code: too many, or too few, but for no code at all, or one of
// one bit, which the format allows for distances and the standard library everywhere.
func (f *inflater) table(table []entry, look uint, sizes []uint8, symbols []entry) bool {
	var count, offset [maxCode + 1]uint16
	for _, s := range sizes {
		count[s]++
	}
	longest := uint(maxCode)
	for longest > 0 && count[longest] == 0 {
		longest--
	}
	clear(table[:1<<look])
	if longest == 0 {
		return true
	}
	space := 0 // codes of the longest length that are taken
	for l := uint(1); l <= longest; l++ {
		space += int(count[l]) << (longest - l)
	}
	if space != 1<<longest && (space != 1 || longest != 1) {
		return false
	}
	count[0] = 0
	for l := 1; l < maxCode; l++ {
		offset[l+1] = offset[l] + count[l]
	}
	for symbol, s := range sizes {
		if s > 0 {
			f.order[offset[s]] = uint16(symbol)
			offset[s]++
		}
	}
	return f.fill(table, look, longest, count, symbols)
}

// pair makes one entry of two literals where the bits that choose it hold the codes of both. Half of the bytes of JSON
// lines that are no copies are digits, with codes of four or five bits.
func pair(table []entry) {
	look := bits.Len(uint(len(table))) - 1
	for i, e := range table {
		first := e >> 8 & 15
		next := table[i>>first] // it may be of two already, and its first one still stands where it stood
		if both := first + next>>8&15; e&next&isLiteral != 0 && int(both) <= look {
			table[i] = isLiteral | isPair | next<<8&0xff000000 | e&0xff0000 | first<<8 | both
		}
	}
}

// fill enters the codes, the shortest first. A code's bits come in reverse, so the next
// code is made by adding one at the other end. False means that the table is full, which
// no code should be able to do.
func (f *inflater) fill(table []entry, look, longest uint, count [maxCode + 1]uint16, symbols []entry) bool {
	var code uint // reversed, within its length
	next, free := 0, 1<<look
	size := uint(1)
	for ; size <= min(look, longest); size++ {
		for range count[size] {
			e := symbols[f.order[next]]
			next++
			if e != 0 { // a length or distance that means nothing stays one
				e += entry(size)<<8 | entry(size)
			}
			for i := code; i < 1<<look; i += 1 << size {
				table[i] = e
			}
			code = following(code, size)
		}
	}
	if longest <= look {
		return true
	}
	var sub []entry // of the codes that begin like the last one
	var prefix, subBits uint
	for prefix = 1 << look; size <= longest; size++ {
		for left := count[size]; left > 0; left-- {
			if begin := code & (1<<look - 1); begin != prefix {
				prefix = begin
				// The subtable is as large as the codes that begin so need: those of this
				// length until they fill it, or of the next ones.
				subBits = size - look
				for room := 1<<subBits - int(left); subBits+look < longest && room > 0; {
					subBits++
					room = room<<1 - int(count[subBits+look])
				}
				if free+1<<subBits > len(table) {
					return false
				}
				sub = table[free : free+1<<subBits]
				table[prefix] = isSubtable | entry(free)<<16 | entry(subBits)<<8 | entry(look)
				free += 1 << subBits
			}
			e := symbols[f.order[next]]
			next++
			if e != 0 {
				e += entry(size-look)<<8 | entry(size-look)
			}
			for i := code >> look; i < 1<<subBits; i += 1 << (size - look) {
				sub[i] = e
			}
			code = following(code, size)
		}
	}
	return true
}

// following is the code after code, both reversed, of size bits.
func following(code, size uint) uint {
	// From the last bit on, ones become zeros up to the first zero, which becomes one.
	ones := uint(bits.LeadingZeros64(^(uint64(code) << (64 - size))))
	if ones >= size {
		return 0
	}
	bit := uint(1) << (size - 1 - ones)
	return code&(bit-1) | bit
}
