package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Setting is a value that an operator has set for all processes of a workload.
type Setting struct {
	Value string    `json:"value"`
	By    string    `json:"by"`
	Since time.Time `json:"since"` // by the clock of the operator's machine
}

// Settings are those of a workload by name; see "Settings" in docs/protocols.md. Names that a
// version does not know stay in the row.
type Settings map[string]Setting

// The bounds of settings in a row.
const (
	maxSettings = 100
	maxSetting  = 100 // bytes of a name or a value
	maxUnpacked = 64 << 10
)

// ID tells these values from others; empty: none is set.
func (s Settings) ID() string {
	if len(s) == 0 {
		return ""
	}
	h := xxhash.New()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		_, _ = fmt.Fprintf(h, "%s=%s\n", name, s[name].Value)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func decodeSettings(f *row.Fields) (s Settings) {
	packed, there := f.Props["Settings"].([]byte)
	if !there {
		return nil
	}
	err := row.Unpack(packed, maxUnpacked, &s)
	if err == nil {
		err = s.fit()
	}
	if err != nil {
		f.Fail("Settings", err.Error())
	}
	return s
}

func (s Settings) fit() error {
	for name, v := range s {
		if len(name) > maxSetting || len(v.Value) > maxSetting {
			return fmt.Errorf("has a name or a value of more than %d bytes", maxSetting)
		}
	}
	if len(s) > maxSettings {
		return errors.New("has too many settings")
	}
	return nil
}

// SetSettings changes the settings of a workload, and gives the workload as it is then. The
// function changes a copy, and is called again when another process was first. It is applied once
// at most and gives up after a minute, as ChangeMap.
func SetSettings(
	ctx context.Context, t storage.Table, workload string, change func(Settings) error,
) (w *Workload, changed bool, err error) {
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		next := Settings{}
		maps.Copy(next, is.settings)
		if err := errors.Join(change(next), next.fit()); err != nil || maps.Equal(next, is.settings) {
			return is, false, err
		}
		is.settings = next
		return is, true, nil
	})
}
