package configfile

import "strings"

// suggestion is the fix for a field that does not exist: the field that was probably meant, or all
// fields.
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

// Nearest is the name that was probably meant by a name that does not exist; empty if no name is
// near.
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

// edits is how many letters of two names differ, are missing, or are swapped with the next one: the
// distance of Damerau and Levenshtein without editing a letter twice.
func edits(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return 64
	}
	var d [65][65]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			if d[i][j] = i + j; i*j == 0 {
				continue
			}
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
