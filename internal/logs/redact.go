// This file decides how much an error may show. A user who puts a connection string into the wrong
// field must not find its key in a log.

package logs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// harmless is what may be shown: keys, signatures and client secrets are longer,
// and a connection string or an address with a signature has other characters.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_.:, -]{0,32}$`)

var (
	queries = regexp.MustCompile(`(?i)https?://[^\s"'?]*\?[^\s"']*`)
	// asked is a query without credentials, as in the commands that doctor gives.
	asked = regexp.MustCompile(`^\?comp=[a-z]{1,16}$`)
	// An HMAC-SHA256 is 43 characters of base64 and a =, a key is 86 and two.
	digests = regexp.MustCompile(`[A-Za-z0-9+/]{42,}={1,2}`)
	tokens  = regexp.MustCompile(
		`(?i)\b(sig=|accountkey=|sharedaccesssignature=|bearer |sharedkey(?:lite)? [^\s:]*:)[^\s&;"',]+`,
	)
)

// Cleaned is a text that another program has written, such as a server or a library,
// without what looks like a key, a signature or a token.
func Cleaned(s string) string {
	s = queries.ReplaceAllStringFunc(s, func(address string) string {
		at := strings.IndexByte(address, '?')
		if asked.MatchString(address[at:]) {
			return address
		}
		return address[:at] + "?REDACTED"
	})
	s = tokens.ReplaceAllString(s, "${1}REDACTED")
	return digests.ReplaceAllString(s, "REDACTED")
}

// Quoted is s in quotes if it cannot be a secret, else a description of it that
// can stand in the same place of a sentence.
func Quoted(s string) string {
	if harmless.MatchString(s) {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("the value (%d characters, not shown: it may be a secret)",
		utf8.RuneCountInString(s))
}
