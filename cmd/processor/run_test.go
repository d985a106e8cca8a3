package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
)

func TestALimitThatWouldNotHoldIsRefused(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--discard --max-rate 1000", "--max-rate: --discard starts no task"},
		{"--discard --max-rate 0", "--max-rate: 0 is out of range"},
		{"--discard --min-interval 0s", "--min-interval: 0s is out of range"},
	} {
		cmd := run()
		cmd.SetArgs(append(strings.Fields(tt.args), "--config", "nowhere.yaml"))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
}
