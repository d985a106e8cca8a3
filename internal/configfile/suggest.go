package configfile

import "strings"

// suggestion is the fix for a field that does not exist: the one that was
// probably meant, or all there are.
func suggestion(name string, fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if best := Nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "the fields here are " + strings.Join(names, ", ")
}

// Nearest is the name that was probably meant by one that does not exist; empty if none is near.
func Nearest(name string, names []string) string {
	best, distance := "", 4 // three typing errors are a different word
	for _, n := range names {
		// A third of the letters wrong is a different word too.
		if d := edits(strings.ToLower(name), strings.ToLower(n)); d < distance && d*3 <= len(n) {
			best, distance = n, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two names.
func edits(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
