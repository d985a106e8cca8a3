package service

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump/storage/azure"
)

const (
	// lookEvery is how often ends are looked at, and warnEvery how often the log tells of one.
	renewLookEvery = time.Hour
	warnEvery      = 24 * time.Hour
)

// all gives the ends of all signatures, by account.
func (k *Keys) all() map[string]time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]time.Time{}
	for name, a := range k.accounts {
		if at := options(a.now.Load().by).SignatureEnds(); !at.IsZero() {
			out[name] = at
		}
	}
	return out
}

// warn tells of signatures that end soon, of each once a day.
func (k *Keys) warn(now time.Time) {
	all := k.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at, told := all[name], k.told.Of(name)
		switch {
		case at.Sub(now) >= azure.EndsSoon:
		case at.After(now):
			told.Say(k.log.Warn, "the shared access signature of an account ends soon",
				"account", name, "ends", at.Format(time.RFC3339), "in", at.Sub(now).Round(time.Minute))
		default:
			told.Say(k.log.Error, "the shared access signature of an account has ended",
				"account", name, "ended", at.Format(time.RFC3339))
		}
	}
}

var endOf = prometheus.NewDesc("queuepump_account_sas_ends_seconds",
	"When the account's shared access signature ends, in seconds since 1970.",
	[]string{"account"}, nil)

// Describe is [prometheus.Collector]'s.
func (k *Keys) Describe(out chan<- *prometheus.Desc) { out <- endOf }

// Collect is [prometheus.Collector]'s.
func (k *Keys) Collect(out chan<- prometheus.Metric) {
	for name, at := range k.all() {
		out <- prometheus.MustNewConstMetric(endOf, prometheus.GaugeValue, float64(at.Unix()), name)
	}
}
