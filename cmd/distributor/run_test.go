package main

import (
	"strings"
	"testing"
)

// B5: what can be read only once is refused for repeated distributions, under whatever name and
// flag.
func TestStandardInputIsKnownUnderAllItsNames(t *testing.T) {
	for _, path := range []string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev/../dev/stdin"} {
		for _, flag := range []string{"--input", "--list"} {
			err := typed(t, "", "run", "--every", "1s", flag, path)
			if err == nil || !strings.Contains(err.Error(), flag+" "+path+" is standard input") {
				t.Errorf("%s %s: %v", flag, path, err)
			}
		}
	}
	for _, path := range []string{"stdin", "/dev/fd/3", "a.jsonl"} {
		err := typed(t, "", "run", "--every", "1s", "--config", "nowhere.yaml", "--format", "jsonl", "--input", path)
		if err == nil || strings.Contains(err.Error(), "standard input") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// typed runs a command line in a directory of its own, and gives its error.
func typed(t *testing.T, config string, args ...string) error {
	t.Helper()
	cmd := root()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if config != "" {
		args = append(args, "--config", config)
	}
	cmd.SetArgs(args)
	return cmd.ExecuteContext(t.Context())
}
