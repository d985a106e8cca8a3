package nudging

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

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/nudge"
)

// nudgeClient sends nudges as HTTP requests. The address comes from a stored row, so any writer of
// the control table may have written it, and it is not trusted: a request is always the same POST
// without a secret, and answers are not read or followed. After names are resolved, an address is
// refused if it means something else on this machine than on the one that published it.
type nudgeClient struct {
	here      *http.Client // for processes on this machine
	elsewhere *http.Client
}

// NewClient makes a client for this machine and for others.
func NewClient() *nudgeClient {
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
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(),
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%w: %s", errAddress, ip)
	case ip.IsLoopback() && !loopback:
		return fmt.Errorf("%w: %s is another machine's own", errAddress, ip)
	}
	return nil
}

// CheckAddress wants host:port and nothing else.
func CheckAddress(address string) error {
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
	if err := CheckAddress(n.Address); err != nil {
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
	u := url.URL{Scheme: "http", Host: n.Address, Path: nudge.Path, RawQuery: query.Encode()}
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
