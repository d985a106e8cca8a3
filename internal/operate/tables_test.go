package operate

import (
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestTextsAreCutToAWidth(t *testing.T) {
	for _, tt := range []struct {
		f    func(string, int) string
		in   string
		to   int
		want string
	}{
		{Cut, "abcdef", 6, "abcdef"},
		{Cut, "abcdefg", 6, "abcde…"},
		{Cut, "日本語日本語", 6, "日本…"},
		{Cut, "e\u0301e\u0301e\u0301", 2, "e\u0301…"},
		{CutMiddle, "worker-1-00c0ffee", 17, "worker-1-00c0ffee"},
		{CutMiddle, "worker-1-00c0ffee", 12, "worke…c0ffee"},
		{CutMiddle, "日本語日本語", 7, "日本…語"},
	} {
		if got := tt.f(tt.in, tt.to); got != tt.want || Width(got) > tt.to {
			t.Errorf("%s cut to %d: %s, want %s", tt.in, tt.to, got, tt.want)
		}
	}
}

// Where a screen is too narrow, what matters least goes first.
func TestATableIsMadeToFit(t *testing.T) {
	var b strings.Builder
	table := Table{
		Columns: []Column{
			{Title: "NAME", Shrink: 6, Middle: true},
			{Title: "N", Right: true, Rank: 1},
			{Title: "NONE"},
			{Title: "PAST", Spare: true},
			{Title: "TOLD", Rank: 2},
			{Title: "ID"},
		},
		Sorted: 2,
	}
	table.Write(&b, 80) // nothing
	table.Add("worker-1-c0ffee", "7", "", "▁▂▃▄", "much", "0123")
	table.Add("w", "1,234", "", "", "", "4567")
	for _, limit := range []int{40, 39, 30, 24, 18} {
		table.Write(&b, limit)
		b.WriteString("---\n")
	}
	table.Strict = true
	table.Write(&b, 9)
	const want = `NAME                N▾  PAST  TOLD  ID
worker-1-c0ffee      7  ▁▂▃▄  much  0123
w                1,234              4567
---
NAME                N▾  TOLD  ID
worker-1-c0ffee      7  much  0123
w                1,234        4567
---
NAME            N▾  TOLD  ID
work…c0ffee      7  much  0123
w            1,234        4567
---
NAME       N▾  ID
wo…fee      7  0123
w       1,234  4567
---
NAME    ID
wo…fee  0123
w       4567
---
N…E  ID
w…e  0123
w    4567
`
	proof.Same(t, b.String(), want, "got …want")
}

func TestATextIsWrapped(t *testing.T) {
	var b strings.Builder
	Wrap(&b, 12, "! ", "of its own accord, incomprehensibly 日本語日本語")
	proof.Same(t, b.String(), "! of its own\n  accord,\n  incompreh…\n  日本語日…\n", "got …want")
}
