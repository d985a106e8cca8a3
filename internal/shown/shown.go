// Package shown decides how much of a wrong value an error may show. Whoever
// puts a connection string into the wrong field must not find its key in a log.
package shown

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// harmless is what may be shown: keys, signatures and client secrets are longer,
// and a connection string or an address with a signature has other characters.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_.:, -]{0,32}$`)

// Quoted is s in quotes if it cannot be a secret, else a description of it that
// can stand in the same place of a sentence.
func Quoted(s string) string {
	if harmless.MatchString(s) {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("the value (%d characters, not shown: it may be a secret)", utf8.RuneCountInString(s))
}
