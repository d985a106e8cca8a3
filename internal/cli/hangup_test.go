package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/configfile"
)

// What of the file is only taken by a restart is said in its words, each time it is read and is
// another.
func TestAReloadSaysWhatNeedsARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pump.yaml")
	write := func(more string) {
		t.Helper()
		text := "workload: demo\naccounts:\n  - connectionString: UseDevelopmentStorage=true\n" + more
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	token := func(name string) string { return fmt.Sprintf("page:\n  tokenFile: /run/%s\n", name) }
	write(token("one"))
	was, err := configfile.Load(path)
	must(t, err)
	var log bytes.Buffer
	c := &Console{Log: slog.New(slog.NewTextHandler(&log, nil))}
	keys, err := Keys(c.Log, path, was)
	must(t, err)
	for _, step := range []struct{ more, says string }{
		{token("one"), ""},
		{token("two"), `msg="page.tokenFile has changed: the page uses the old file until the process is started again" before=/run/one now=/run/two`},
		{"", `before=/run/one now=""`},
		{token("one") + "  onAdminPort: false\n", "page.onAdminPort has changed"},
		{token("one") + "admin:\n  listen: 127.0.0.1:1\n", "the admin port stays where it is"},
	} {
		write(step.more)
		log.Reset()
		must(t, c.Reload(path, was, keys, func(*configfile.File) error { return nil }))
		text := log.String()
		if warns := strings.Count(text, "level=WARN"); warns != min(len(step.says), 1) ||
			!strings.Contains(text, step.says) {
			t.Errorf("%q: %s", step.more, text)
		}
	}
}
