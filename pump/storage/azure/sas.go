package azure

import (
	"net/url"
	"strings"
	"time"
)

// EndsSoon is how long before its end a shared access signature is worth a warning: as long as a
// holiday.
const EndsSoon = 7 * 24 * time.Hour

// SignatureEnds is when the first of the account's shared access signatures ends; zero: there is
// none, or it does not say when.
func (o Options) SignatureEnds() (first time.Time) {
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
	for field := range strings.SplitSeq(o.ConnectionString, ";") {
		if name, value, _ := strings.Cut(field, "="); strings.EqualFold(strings.TrimSpace(name),
			"SharedAccessSignature") {
			note(strings.TrimSpace(value))
		} else if _, query, found := strings.Cut(value, "?"); found {
			note(query)
		}
	}
	for _, endpoint := range []string{o.Endpoint, o.TableEndpoint} {
		if _, query, found := strings.Cut(endpoint, "?"); found {
			note(query)
		}
	}
	return first
}
