package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
)

// NudgePath is where the admin port takes nudges.
const NudgePath = "/nudge"

// nudgeClient sends nudges as HTTP requests. Where to comes from a stored row, which
// anybody may have written who can write to the control table; so nothing of it is
// trusted: a request carries no secret and is always the same POST, no answer is
// read or followed, and addresses that mean something else on this machine than on
// the one that published them are refused, after names were resolved.
type nudgeClient struct {
	here      *http.Client // for processes on this machine
	elsewhere *http.Client
}

func newNudgeClient() *nudgeClient {
	return &nudgeClient{here: newNudgeTransport(true), elsewhere: newNudgeTransport(false)}
}

func newNudgeTransport(loopback bool) *http.Client {
	dialer := &net.Dialer{
		Timeout: nudgeTimeout,
		Control: func(_, address string, _ syscall.RawConn) error { return mayDial(address, loopback) },
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a process of the cluster is reached directly or not at all
			DialContext:            dialer.DialContext,
			DisableKeepAlives:      true, // the next nudge to it may be hours away
			MaxResponseHeaderBytes: 4 << 10,
			ResponseHeaderTimeout:  nudgeTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

var errAddress = errors.New("not an address to nudge")

// mayDial judges an address that is about to be dialled, after resolution.
func mayDial(address string, loopback bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errAddress, err)
	}
	ip := at.Addr().Unmap()
	switch {
	// The unspecified address reaches this machine; link-local ones hold the
	// cloud's metadata service.
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%w: %s", errAddress, ip)
	case ip.IsLoopback() && !loopback:
		return fmt.Errorf("%w: %s is another machine's own", errAddress, ip)
	}
	return nil
}

// checkNudgeAddress wants host:port and nothing else.
func checkNudgeAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errAddress, err)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && !validHost.MatchString(host), address[0] == '[' && !ip.Is6():
		return fmt.Errorf("%w: its host is not a name", errAddress)
	case ip.Zone() != "":
		return fmt.Errorf("%w: its zone is another machine's", errAddress)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: its port is not a number", errAddress)
	}
	return nil
}

var validHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$`)

func (c *nudgeClient) send(ctx context.Context, n pump.Nudge) error {
	if err := checkNudgeAddress(n.Address); err != nil {
		return err
	}
	query := url.Values{"instance": {n.Instance}}
	if n.Queue != "" {
		query.Set("queue", n.Queue)
	}
	if n.Gate != "" {
		query.Set("gate", n.Gate)
	}
	if n.Traffic {
		query.Set("traffic", "1")
	}
	u := url.URL{Scheme: "http", Host: n.Address, Path: NudgePath, RawQuery: query.Encode()}
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errAddress, err)
	}
	client := c.elsewhere
	if n.Here {
		client = c.here
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 64)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("nudge answered with %d", answer.StatusCode)
	}
	return nil
}

// Of incoming nudges: an owner of a thousand queues may be told of all of them at once,
// and then of a few hundred a second. What is more says nothing new.
const (
	nudgesTaken      = 256
	nudgesTakenBurst = 1024
	maxNudgeQuery    = 1024
)

// NudgeHandler answers POST requests on [NudgePath] with 204 after handing the nudge
// to the process of that instance, 421 if it is for another one, which used
// the address before, 400 if it is malformed and 429 if there are too many. It
// reads no body, and whoever can send one can make the process look at its storage,
// nothing more.
func NudgeHandler(process interface{ Nudged(n pump.Nudge) }, instance string) http.Handler {
	limiter := rate.NewLimiter(nudgesTaken, nudgesTakenBurst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		n, err := parseNudge(r.URL.RawQuery)
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
	errNudge   = errors.New("not a nudge")
	validQueue = regexp.MustCompile(`^[!-.0-~]{1,200}/[a-z0-9-]{1,63}$`) // an account's name may be anything printable
)

// parseNudge reads a query. A nudge is about one thing at most.
func parseNudge(query string) (pump.Nudge, error) {
	if len(query) > maxNudgeQuery {
		return pump.Nudge{}, errNudge
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return pump.Nudge{}, errNudge
	}
	n := pump.Nudge{Instance: values.Get("instance"), Queue: values.Get("queue"), Gate: values.Get("gate"), Traffic: values.Get("traffic") == "1"}
	switch {
	case n.Instance == "", len(values["instance"])+len(values["queue"])+len(values["gate"])+len(values["traffic"]) > 2,
		len(values["traffic"]) > 0 && !n.Traffic,
		n.Queue != "" && !validQueue.MatchString(n.Queue),
		n.Gate != "" && coordination.CheckGate(n.Gate) != nil:
		return pump.Nudge{}, errNudge
	}
	return n, nil
}
