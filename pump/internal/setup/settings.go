package setup

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Setting is one value that must be equal in all processes.
type Setting struct {
	Name string
	// Field is what gives it in one process: a flag, or a field of the configuration.
	Field string
	group string // values of a group are judged together, so one place gives all that are given
	to    any    // where it is
}

// SettingsOf is the table of all settings, which point into values.
func SettingsOf(v *queues.Values) []Setting {
	return []Setting{
		{"beat", "beat", "times", &v.Beat},
		{"lease", "lease", "times", &v.Lease},
		{"max-rate", "max-rate", "", &v.MaxRate},
		{"max-attempts", "max-attempts", "", &v.Retry.MaxAttempts},
		{"max-age", "max-age", "", &v.Retry.MaxAge},
		{"max-busy", "max-busy", "", &v.Retry.MaxBusy},
		{"retry-base", "retry-base", "delays", &v.Retry.Base},
		{"retry-max", "retry-max", "delays", &v.Retry.Max},
		{"retention", "retention", "", &v.Retention},
		{"per-key-concurrent", "perKey.concurrent", "", &v.PerKey.Concurrent},
		{"per-key-rate", "perKey.rate", "", &v.PerKey.Rate},
		{"cost-per-day", "budget.costPerDay", "money", &v.CostPerDay},
		{"queue-price", "prices.queue", "money", &v.Prices.Queue},
		{"table-price", "prices.table", "money", &v.Prices.Table},
		{"currency", "prices.currency", "money", &v.Prices.Currency},
	}
}

// Text is the value in words, as Parse reads it; empty: it is not given.
func (s *Setting) Text() string {
	v := reflect.ValueOf(s.to).Elem()
	if v.IsZero() {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// Parse reads a value. The error is a [*pump.ConfigError].
func (s *Setting) Parse(text string) (err error) {
	switch to := s.to.(type) {
	case *time.Duration:
		*to, err = time.ParseDuration(text)
	case *float64:
		*to, err = strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	case *int:
		*to, err = strconv.Atoi(text)
	case *string:
		*to = text
	}
	if err != nil {
		return pump.Invalid(s.Name, fmt.Sprintf("%.40q is not a value of it", text),
			fmt.Sprintf("give a value as in %s=%s", s.Name, s.example()))
	}
	if s.Text() == "" {
		return pump.Invalid(s.Name, fmt.Sprintf("%.40q would be the default", text),
			"use: distributor workload set --unset "+s.Name)
	}
	return nil
}

func (s *Setting) example() string {
	if _, is := s.to.(*time.Duration); is {
		return "90s"
	}
	return "5"
}

// given names the values that are not zero.
func given(v queues.Values) (names []string) {
	for _, s := range SettingsOf(&v) {
		if s.Text() != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Clash names the settings among names that meet one of another list: the same, or of its group.
func Clash(names, with []string) (clashing []string) {
	group := map[string]string{}
	for _, s := range SettingsOf(&queues.Values{}) {
		group[s.Name] = s.group
	}
	for _, name := range names {
		if slices.ContainsFunc(with, func(other string) bool {
			return name == other || group[name] != "" && group[name] == group[other]
		}) {
			clashing = append(clashing, name)
		}
	}
	return clashing
}

// unshared refuses values that a process gives itself and the workload gives to all.
func unshared(v queues.Values, set workload.Settings) error {
	names, own := slices.Sorted(maps.Keys(set)), given(v)
	both := Clash(own, names)
	if len(both) == 0 {
		return nil
	}
	var theirs []string
	for _, name := range Clash(names, own) {
		theirs = append(theirs, fmt.Sprintf("%s=%s by %s", name, set[name].Value, set[name].By))
	}
	var fields []string
	for _, s := range SettingsOf(&v) {
		if slices.Contains(both, s.Name) {
			fields = append(fields, s.Field)
		}
	}
	return pump.Invalid(fields[0], "it is given to this process, and the workload has for all "+
		"processes "+strings.Join(theirs, ", "), "leave out "+strings.Join(fields, ", ")+
		" here, or use: distributor workload set --unset "+strings.Join(Clash(names, own), ","))
}

// WithSettings puts the settings of a workload into values, and completes and checks them as flags
// and configurations are. Unknown are those that this version cannot read.
func WithSettings(
	v queues.Values, set workload.Settings,
) (_ queues.Values, unknown []string, err error) {
	left := maps.Clone(set)
	for _, s := range SettingsOf(&v) {
		is, there := set[s.Name]
		if there && s.Parse(is.Value) == nil {
			delete(left, s.Name)
		}
		if there && s.group == "money" && s.Name != "cost-per-day" {
			v.Prices.Source, v.Prices.Date = "as set for the workload", ""
		}
	}
	unknown = slices.Sorted(maps.Keys(left))
	if err = Times(&v.Beat, &v.Lease); err == nil {
		err = CheckMaxRate(v.MaxRate)
	}
	if err == nil {
		err = v.PerKey.Check()
	}
	if err == nil {
		v.Retry, err = Retry(v.Retry)
	}
	if err == nil {
		err = checkRetention(&v.Retention)
	}
	if err == nil {
		v.Prices, err = priceList(v.Prices)
	}
	if err == nil {
		_, err = Budget(pump.Budget{CostPerDay: v.CostPerDay})
	}
	return v, unknown, err
}

// CheckSettings judges the settings that a workload would have after some names are changed.
// Shared: its segments have no owners.
func CheckSettings(
	c *pump.Config, own queues.Values, changed []string, set workload.Settings, shared bool,
) error {
	v := own
	var known []string
	for _, s := range SettingsOf(&v) {
		known = append(known, s.Name)
		if is, there := set[s.Name]; there && slices.Contains(changed, s.Name) {
			if err := s.Parse(is.Value); err != nil {
				return err
			}
		}
	}
	for _, name := range changed {
		if !slices.Contains(known, name) {
			return pump.Invalid(fmt.Sprintf("%.40q", name), "no setting is called so",
				"use "+strings.Join(known, ", "))
		}
	}
	if err := unshared(own, set); err != nil {
		return err
	}
	v, _, err := WithSettings(own, set)
	if err == nil {
		err = CheckPerKey(v.PerKey, shared)
	}
	if err != nil {
		return err
	}
	next := *c
	next.Budget.CostPerDay, next.Prices = v.CostPerDay, v.Prices
	return queues.Check(&next)
}

// CheckPerKey refuses limits that cannot be held. Uncounted: no owner counts the tasks of a key.
func CheckPerKey(k pump.PerKey, uncounted bool) error {
	if uncounted && k.Bounds() {
		return pump.Invalid("perKey", "with segments: 0 no owner counts the tasks of a key, "+
			"and discarding starts none", "use a workload with segments and a handler, or leave it out")
	}
	return k.Check()
}

// Times completes and checks the times of a member.
func Times(beat, lease *time.Duration) error {
	Default(beat, member.DefaultBeat)
	Default(lease, 4**beat)
	switch {
	case *beat < time.Millisecond || *beat > 10*time.Minute:
		return OutOfRange("beat", *beat, "use 1ms to 10m, or leave it out for 5s")
	case *lease < 3**beat || *lease > time.Hour:
		return pump.Invalid("lease", fmt.Sprintf("%v is not from three beats of %v to an hour",
			*lease, *beat), "use four beats, or leave it out")
	}
	return nil
}

func checkRetention(d *time.Duration) error {
	Default(d, defaultRetained)
	if *d < time.Minute {
		return OutOfRange("retention", *d, "use 1m or more, or leave it out for 168h")
	}
	return nil
}

// ValuesOf are those that a configuration gives.
func ValuesOf(c *pump.Config) queues.Values {
	return queues.Values{Retention: c.Retention, CostPerDay: c.Budget.CostPerDay, Prices: c.Prices}
}

// Begin puts the values in force that a process gives itself. Paced: it starts tasks.
func Begin(f *queues.Set, own queues.Values, paced bool) error {
	v, _, err := WithSettings(own, nil)
	if err != nil {
		return err
	}
	f.Heeds.Given, f.Heeds.Own, f.Heeds.Paced = own, given(own), paced
	f.SetValues(v)
	return nil
}

// Follow puts the settings of a workload in force, if they are others than before, and says
// whether they are. It is called for each look at the workload. A [*pump.ConfigError] says that
// this process gives one of them itself.
func Follow(f *queues.Set, w *workload.Workload) (changed bool, err error) {
	h := &f.Heeds
	h.Lock()
	defer h.Unlock()
	id := w.Settings.ID()
	if id == h.Set.ID() || id != "" && id == h.Amiss {
		return false, nil
	}
	if err := unshared(h.Given, w.Settings); err != nil {
		return false, err
	}
	v, unknown, err := WithSettings(h.Given, w.Settings)
	if err != nil {
		h.Amiss = id
		f.Cfg.Log.Error("the settings of the workload cannot be in force here; those before are",
			"error", err)
		return false, nil
	}
	if !h.Paced {
		v.MaxRate = 0
	}
	f.SetValues(v)
	h.Set = w.Settings
	var attrs []any
	for _, name := range slices.Sorted(maps.Keys(w.Settings)) {
		attrs = append(attrs, name, w.Settings[name].Value)
	}
	f.Cfg.Log.Info("the settings of the workload are in force", attrs...)
	if len(unknown) > 0 {
		f.Cfg.Log.Warn("the workload has settings that this version cannot read; use a newer one",
			"settings", strings.Join(unknown, " "))
	}
	return true, nil
}

// regive takes what a process gives itself from now on, of money.
func regive(f *queues.Set, c *pump.Config) (changed bool, err error) {
	h := &f.Heeds
	h.Lock()
	defer h.Unlock()
	next := h.Given
	next.CostPerDay, next.Prices = c.Budget.CostPerDay, c.Prices
	err = unshared(next, h.Set)
	v, _, wrong := WithSettings(next, h.Set)
	if err = cmp.Or(err, wrong); err != nil {
		return false, err
	}
	was := f.Values()
	v.MaxRate = was.MaxRate
	f.SetValues(v)
	h.Given, h.Own = next, given(next)
	return v.CostPerDay != was.CostPerDay || v.Prices != was.Prices, nil
}
