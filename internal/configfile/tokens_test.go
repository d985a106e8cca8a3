package configfile

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestATokenIsForWhatItsLineSays(t *testing.T) {
	const all, sends, looks = "a passphrase of some words", "0123456789abcdef", "fedcba9876543210"
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("\ufeff# ours\n\n" + all + "\nsend: " + sends + "\nread,operate:" + looks + "\r\n")
	tokens := NewTokenFile(path)
	for _, c := range []struct {
		scope, given string
		status       int
	}{
		{ScopeSend, all, 0},
		{ScopeRead, all, 0},
		{ScopeOperate, all, 0},
		{ScopeSend, sends, 0},
		{ScopeRead, sends, 403},
		{ScopeOperate, sends, 403},
		{ScopeSend, looks, 403},
		{ScopeRead, looks, 0},
		{ScopeOperate, looks, 0},
		{ScopeSend, "", 401},
		{ScopeSend, "send: " + sends, 401},
		{ScopeSend, "# ours", 401},
		{ScopeSend, sends[1:], 401},
	} {
		if status, why := tokens.Check(c.scope, c.given); status != c.status || (why == "") != (status == 0) {
			t.Errorf("%s with %q: %d %s", c.scope, c.given, status, why)
		}
	}
	for range 10 {
		_, _ = tokens.Check(ScopeSend, "guess")
	}
	if status, _ := tokens.Check(ScopeSend, "guess"); status != http.StatusTooManyRequests {
		t.Errorf("a tenth guess: %d", status)
	}
	if status, _ := tokens.Check(ScopeSend, sends); status != 0 {
		t.Errorf("guesses keep the right token out: %d", status)
	}
	for _, text := range []string{"", "# none\n", "short", "send: short", "sned: " + sends, "send operate; read: " + sends, ": " + sends, "send: " + strings.Repeat("x", 5000)} {
		write(text)
		if status, _ := tokens.Check(ScopeSend, sends); status != http.StatusServiceUnavailable {
			t.Errorf("%.20q: %d", text, status)
		}
	}
	must(t, os.Remove(path))
	proof.Is(t, proof.ErrOf(tokens.Read()), os.ErrNotExist, "tokens of a file that is not there")
}
