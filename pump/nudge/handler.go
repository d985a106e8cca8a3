package nudge

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
)

// Path is where the admin port takes nudges.
const Path = "/nudge"

// Bounds of incoming nudges: an owner of a thousand queues may be told of all of them at once, and
// then of a few hundred a second. Further nudges say nothing new.
const (
	Taken      = 256
	TakenBurst = 1024
	MaxQuery   = 1024
)

// Handler answers POST requests on [Path]: with 204 after it has handed the nudge to the process of
// that instance, 421 if the nudge is for another instance (which used the address before), 400 if
// the nudge is malformed, and 429 if there are too many. It reads no body. A client that can send
// nudges can make the process look at its storage, and nothing more.
func Handler(process interface{ Nudged(n pump.Nudge) }, instance string) http.Handler {
	limiter := rate.NewLimiter(Taken, TakenBurst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		n, err := Parse(r.URL.RawQuery)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case n.Instance != instance:
			w.WriteHeader(http.StatusMisdirectedRequest)
		case !limiter.AllowN(time.Now(), 1):
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			process.Nudged(n)
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

var (
	errNudge = errors.New("not a nudge")
	// an account's name may be anything printable
	validQueue = regexp.MustCompile(`^[!-.0-~]{1,200}/[a-z0-9-]{1,63}$`)
)

// Parse reads a query. A nudge is about one thing at most.
func Parse(query string) (pump.Nudge, error) {
	if len(query) > MaxQuery {
		return pump.Nudge{}, errNudge
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return pump.Nudge{}, errNudge
	}
	n := pump.Nudge{
		Instance: values.Get("instance"), Queue: values.Get("queue"), Gate: values.Get("gate"),
		Traffic: values.Get("traffic") == "1",
	}
	switch {
	case n.Instance == "", len(values["instance"])+len(values["queue"])+len(values["gate"])+
		len(values["traffic"]) > 2,
		len(values["traffic"]) > 0 && !n.Traffic,
		n.Queue != "" && !validQueue.MatchString(n.Queue),
		n.Gate != "" && coordination.CheckGate(n.Gate) != nil:
		return pump.Nudge{}, errNudge
	}
	return n, nil
}
