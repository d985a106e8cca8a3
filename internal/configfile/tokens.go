package configfile

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"golang.org/x/time/rate"
)

// What a token may be for.
const (
	ScopeRead    = "read"    // see what tasks hold
	ScopeSend    = "send"    // post tasks
	ScopeOperate = "operate" // act on a workload
)

const (
	// maxToken is the largest size of the tokens' file, leastToken the shortest token: 16 random
	// characters cannot be guessed.
	maxToken   = 4 << 10
	leastToken = 16
)

// TokenFile is the tokens of a file. Each line is a token, or what it is for, a colon and the
// token: "send: TOKEN", "read, operate: TOKEN". A token without that is for all. Blank lines and
// lines that begin with # are passed over.
type TokenFile struct {
	path  string
	wrong *rate.Limiter
}

// NewTokenFile gives the tokens of a file, which is read with each check: a new token counts at
// once.
func NewTokenFile(path string) *TokenFile {
	// Five wrong tokens at once are answered as such, then one a second. The right one always is.
	return &TokenFile{path: path, wrong: rate.NewLimiter(1, 5)}
}

// token is one of a file.
type token struct {
	text  string
	scope string // what it is for, with a space before and behind each word; empty: all
}

// Check says with which status, and why, a client with this token may not do what is in a scope;
// empty: it may.
func (t *TokenFile) Check(scope, given string) (status int, why string) {
	all, err := t.Read()
	if err != nil {
		return http.StatusServiceUnavailable, "the token's file cannot be used; the log says why"
	}
	sum := sha256.Sum256([]byte(given))
	status, why = http.StatusUnauthorized, "the token is wrong"
	for _, one := range all {
		right := sha256.Sum256([]byte(one.text))
		switch {
		case subtle.ConstantTimeCompare(sum[:], right[:]) == 0:
		case one.scope == "" || strings.Contains(one.scope, " "+scope+" "):
			return 0, ""
		default:
			status, why = http.StatusForbidden, "the token is not for this: it lacks "+scope
		}
	}
	if status == http.StatusUnauthorized && !t.wrong.Allow() {
		return http.StatusTooManyRequests, "too many wrong tokens; wait a moment"
	}
	return status, why
}

// Read reads the file.
func (t *TokenFile) Read() (all []token, err error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		one := token{text: line}
		if scope, rest, ok := strings.Cut(line, ":"); ok && areScopes(scope) {
			one = token{strings.TrimSpace(rest), " " + strings.ReplaceAll(scope, ",", " ") + " "}
		} else if ok { // it may be a slip of the pen, and must not be a token for all
			return nil, fmt.Errorf("%s:%d: before the colon stands what a token is for: read, send, operate",
				t.path, number)
		}
		if len(one.text) < leastToken {
			return nil, fmt.Errorf("%s:%d: a token has %d characters or more", t.path, number, leastToken)
		}
		all = append(all, one)
	}
	if len(all) == 0 || len(text) > maxToken {
		return nil, fmt.Errorf("%s: it has no token, or more than %d KiB", t.path, maxToken>>10)
	}
	return all, nil
}

// areScopes reports whether a text says what a token is for.
func areScopes(text string) bool {
	words := strings.Fields(strings.ReplaceAll(text, ",", " "))
	return len(words) > 0 && !slices.ContainsFunc(words, func(word string) bool {
		return word != ScopeRead && word != ScopeSend && word != ScopeOperate
	})
}
