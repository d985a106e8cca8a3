package workloads

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Setting is a value that is the same in all processes of a workload.
type Setting struct {
	Name string `json:"name"`
	// Value is in force; empty: there is no limit, or it follows the work.
	Value string `json:"value"`
	// From is "workload", "configuration" (this one's), "default", or "unknown": the workload has it,
	// and this version cannot read it.
	From  string     `json:"from"`
	By    string     `json:"by"`    // who set it; empty: it is not the workload's
	Since *time.Time `json:"since"` // by that machine's clock
}

// SettingsChange is what a change of settings came to.
type SettingsChange struct {
	Workload string    `json:"workload"`
	Changed  bool      `json:"changed"`
	Settings []Setting `json:"settings"`
	// Members is how many processes there are, Nudged how many of them took the hint to look at once.
	// Behind are those in which these settings were not in force at their last beat; never null.
	Members int      `json:"members"`
	Nudged  int      `json:"nudged"`
	Behind  []string `json:"behind"`
}

// Operator names who runs this program, user@host, for what takes it as by.
func Operator() string { return setup.Operator() }

// Settings gives the settings of a workload, and changes nothing.
func Settings(ctx context.Context, cfg pump.Config) (SettingsChange, error) {
	return SetSettings(ctx, cfg, nil, nil, "")
}

// SetSettings gives values of a workload to all of its processes, and takes others back. Without
// both it changes nothing. The processes take them with their next look at the workload: within two
// beats, in clusters of up to 32 members. A value that a process gives itself, by a flag or its
// configuration, is a [*pump.ConfigError] that names the process. So is a wrong value, and values
// that do not go together.
func SetSettings(
	ctx context.Context, cfg pump.Config, set map[string]string, unset []string, by string,
) (c SettingsChange, err error) {
	s, err := setup.Open(ctx, cfg)
	if err != nil {
		return c, err
	}
	own := setup.ValuesOf(&cfg)
	w, names := s.Workload, append(slices.Sorted(maps.Keys(set)), unset...)
	if len(names) > 0 {
		change := func(now workload.Settings) error {
			changed := slices.Collect(maps.Keys(set))
			for _, name := range unset {
				if _, both := set[name]; both {
					return pump.Invalid(name, "it is both set and unset", "give one of both")
				}
				if _, is := now[name]; !is { // else it may be of a newer version
					changed = append(changed, name)
				}
				delete(now, name)
			}
			for name, value := range set {
				if is, there := now[name]; !there || is.Value != value {
					now[name] = workload.Setting{Value: value, By: row.Clip(by), Since: time.Now().UTC()}
				}
			}
			return setup.CheckSettings(&s.Cfg.Config, own, changed, now, w.Shared)
		}
		// Before the log: a mistake is not a change.
		trial := workload.Settings{}
		maps.Copy(trial, w.Settings)
		if err = change(trial); err != nil {
			return c, err
		}
		view, err := cluster.LoadView(ctx, s.Queues.Control, w.Name)
		if err == nil {
			err = givenNowhere(view, slices.Collect(maps.Keys(set)))
		}
		if err != nil {
			return c, err
		}
		what := "set"
		for _, name := range names {
			if value, is := set[name]; is {
				what += " " + name + "=" + value
			} else {
				what += " --unset " + name
			}
		}
		err = s.Logged(ctx, by, what, func() (err error) {
			w, c.Changed, err = workload.SetSettings(ctx, s.Queues.Control, w.Name, change)
			return err
		})
		if err != nil {
			return c, err
		}
	}
	c.Workload, c.Settings = w.Name, settingsOf(own, w.Settings)
	if c.Changed {
		_, c.Nudged = s.Tell(ctx)
	}
	view, err := cluster.LoadView(ctx, s.Queues.Control, w.Name)
	if err != nil {
		return c, err
	}
	c.Members, c.Behind = len(view.Members), append([]string{}, view.Behind()...)
	return c, nil
}

// givenNowhere refuses settings that a process gives itself.
func givenNowhere(v *cluster.View, names []string) error {
	var by []string
	for i := range v.Members {
		if both := setup.Clash(v.Members[i].Own, names); len(both) > 0 {
			by = append(by, fmt.Sprintf("%s on %s (%s)", v.Members[i].Instance, v.Members[i].Host,
				strings.Join(both, ", ")))
		}
	}
	if len(by) == 0 {
		return nil
	}
	return pump.Invalid(names[0], "processes give it, or what belongs to it, themselves: "+
		setup.SomeOf(by, 10), "leave it out there (flags or configuration), restart them, and try again")
}

// settingsOf gives each value and where it is from.
func settingsOf(own queues.Values, set workload.Settings) (all []Setting) {
	now, unknown, _ := setup.WithSettings(own, set)
	mine := setup.SettingsOf(&own)
	for i, s := range setup.SettingsOf(&now) {
		one := Setting{Name: s.Name, Value: s.Text(), From: "default"}
		if mine[i].Text() != "" {
			one.From = "configuration"
		}
		all = append(all, one)
	}
	for _, name := range unknown {
		all = append(all, Setting{Name: name, Value: set[name].Value})
	}
	for i := range all {
		if is, there := set[all[i].Name]; there {
			all[i].From, all[i].By, all[i].Since = "workload", is.By, new(is.Since)
			if slices.Contains(unknown, all[i].Name) {
				all[i].From, all[i].Value = "unknown", is.Value
			}
		}
	}
	return all
}

// LogEntry is a change by an operator.
type LogEntry struct {
	Time    time.Time `json:"time"` // by the clock of the operator's machine
	By      string    `json:"by"`
	Version string    `json:"version"` // of the operator's program
	What    string    `json:"what"`
	// State is "begun", "done" or "failed". An entry that stays begun is of a change whose end is not
	// known: it may have been made.
	State string `json:"state"`
	Note  string `json:"note"` // why it failed
}

// Log gives what operators have changed since a moment, the newest last. The workload keeps the
// last thousand entries.
func Log(ctx context.Context, cfg pump.Config, since time.Time) ([]LogEntry, error) {
	s, err := setup.Open(ctx, cfg)
	if s == nil {
		return nil, err
	}
	found, err := workload.Log(ctx, s.Queues.Control, s.Workload.Name, since)
	log := make([]LogEntry, len(found))
	for i, e := range found {
		log[i] = LogEntry(e)
	}
	return log, err
}
