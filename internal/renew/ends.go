package renew

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
)

const (
	// soon is how long before its end a signature is worth a warning: as long as a holiday.
	soon = 7 * 24 * time.Hour
	// lookEvery is how often ends are looked at, and warnEvery how often one is told of.
	lookEvery = time.Hour
	warnEvery = 24 * time.Hour
)

// ends is when the first of an account's shared access signatures ends; zero: there is none.
func ends(a pump.Account) (first time.Time) {
	note := func(query string) {
		values, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
		if err != nil || values.Get("sig") == "" {
			return
		}
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02"} {
			if at, err := time.Parse(layout, values.Get("se")); err == nil {
				if first.IsZero() || at.Before(first) {
					first = at
				}
				return
			}
		}
	}
	for field := range strings.SplitSeq(a.ConnectionString, ";") {
		if name, value, _ := strings.Cut(field, "="); strings.EqualFold(strings.TrimSpace(name), "SharedAccessSignature") {
			note(strings.TrimSpace(value))
		} else if _, query, found := strings.Cut(value, "?"); found {
			note(query)
		}
	}
	for _, endpoint := range []string{a.Endpoint, a.TableEndpoint} {
		if _, query, found := strings.Cut(endpoint, "?"); found {
			note(query)
		}
	}
	return first
}

// all gives the ends of all signatures, by account.
func (k *Keys) all() map[string]time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]time.Time{}
	for name, a := range k.accounts {
		if at := ends(a.now.Load().by); !at.IsZero() {
			out[name] = at
		}
	}
	return out
}

// warn tells of signatures that end soon, of each once a day.
func (k *Keys) warn(now time.Time) {
	all := k.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := all[name]
		k.mu.Lock()
		due := at.Sub(now) < soon && now.Sub(k.told[name]) >= warnEvery
		if due {
			k.told[name] = now
		}
		k.mu.Unlock()
		switch {
		case !due:
		case at.After(now):
			k.log.Warn("the shared access signature of an account ends soon", "account", name, "ends", at.Format(time.RFC3339), "in", at.Sub(now).Round(time.Minute))
		default:
			k.log.Error("the shared access signature of an account has ended", "account", name, "ended", at.Format(time.RFC3339))
		}
	}
}

var endOf = prometheus.NewDesc("queuepump_account_sas_ends_seconds", "When the account's shared access signature ends, in seconds since 1970.", []string{"account"}, nil)

// Describe is [prometheus.Collector]'s.
func (k *Keys) Describe(out chan<- *prometheus.Desc) { out <- endOf }

// Collect is [prometheus.Collector]'s.
func (k *Keys) Collect(out chan<- prometheus.Metric) {
	for name, at := range k.all() {
		out <- prometheus.MustNewConstMetric(endOf, prometheus.GaugeValue, float64(at.Unix()), name)
	}
}
