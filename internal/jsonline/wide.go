package jsonline

import "bytes"

// Wide names the encoding of a text whose characters take two or four bytes each, as its first four
// bytes say: they hold a mark, or the zeros of plain letters. It is empty for every other text.
func Wide(head []byte) string {
	head = head[:min(4, len(head))]
	if len(head) < 2 {
		return ""
	}
	zeros := bytes.Count(head, []byte{0})
	marked := head[0] >= 0xfe && head[1] >= 0xfe && head[0] != head[1]
	switch {
	case zeros == 3, zeros == 2 && (marked || len(head) == 4 && head[2] >= 0xfe && head[3] >= 0xfe):
		return "UTF-32"
	case marked, head[0] == 0, head[1] == 0:
		return "UTF-16"
	}
	return ""
}
