package row_test

import (
	"testing"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// A query that goes on behind a row misses no key, and asks for none that the driver refuses.
func TestNoKeyIsBetweenAKeyAndWhatIsAfterIt(t *testing.T) {
	is := func(key string) bool { return testkit.CheckKeys(storage.Query{From: key}) == nil }
	for _, key := range []string{"live.00", "head.0007", "a-", "z~"} {
		after := row.After(key)
		if !is(after) {
			t.Errorf("%q is no key", after)
		}
		for c := range rune(128) {
			if next := key + string(c); is(next) && next < after {
				t.Errorf("%q is between %q and %q", next, key, after)
			}
		}
	}
}
