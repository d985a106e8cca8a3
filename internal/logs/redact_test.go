package logs

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestASecretIsNeverShown(t *testing.T) {
	var b [64]byte
	_, _ = rand.Read(b[:])
	for _, secret := range []string{
		base64.StdEncoding.EncodeToString(b[:]), base64.RawURLEncoding.EncodeToString(b[:]), base64.StdEncoding.EncodeToString(b[:32]), hex.EncodeToString(b[:32]),
		"AccountKey=abcd", "sv=2019&sig=abcd", "?sig=abc", "abc8Q~abcdefghijklmnopqrstuvwxyz12345678", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", strings.Repeat("ä", 20), "short\nline",
	} {
		if got := Quoted(secret); strings.Contains(got, secret[:4]) {
			t.Errorf("%q is shown as %s", secret, got)
		}
	}
}

func TestAnAddressInACommandThatDoctorGivesIsWhole(t *testing.T) {
	const command = "curl -sS 'https://acct.queue.core.windows.net/?comp=list'"
	proof.Same(t, Cleaned(command), command)
	proof.Same(t, Cleaned("https://acct.queue.core.windows.net/?comp=list&sig=abcd"), "https://acct.queue.core.windows.net/?REDACTED")
}

func TestAMisspelledValueIsShown(t *testing.T) {
	for value, want := range map[string]string{"": `""`, "at-most-once": `"at-most-once"`, "12 queues": `"12 queues"`, "Thumbs_EU": `"Thumbs_EU"`} {
		proof.Same(t, Quoted(value), want, value, "is shown as")
	}
}
