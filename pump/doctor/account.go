package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

const (
	// dateTimeout is how long an account may take to answer its first request: ten times what a slow
	// one takes, and with what follows less than a whole Check has.
	dateTimeout = 3 * time.Second
	// keepsTimeout is how long the question may take whether results are kept: all else waits for it.
	keepsTimeout = time.Second
	// trialTimeout is how long all requests of a trial may take together: some fifteen, of tens of
	// milliseconds each.
	trialTimeout = 4 * time.Second
	// removeTimeout is how long removing what the trial has made may take, also after an interrupt.
	// reserve is what is left of a Check when the trial has to end.
	removeTimeout = 1500 * time.Millisecond
	reserve       = 200 * time.Millisecond

	// A signature is good for 15 minutes; a shared access signature that was just made has no
	// such room.
	clockOff    = time.Minute
	clockBroken = 10 * time.Minute
)

// dated and hosted are what a driver may know besides the contract of package storage.
type dated interface {
	Date(ctx context.Context) (time.Time, error)
}

type hosted interface {
	Hosts() (queue, table string)
	Endpoint() string
}

type blobHosted interface{ BlobHost() (string, error) }

// patient is one account under examination. Only its own goroutine uses it, until all have ended.
type patient struct {
	c     *checkup
	of    pump.Account
	facts *Account

	silent   error         // it does not answer, or is not there
	unnamed  []string      // its names that do not resolve
	resolved []hostAddress // the others
	off      time.Duration // this machine's clock ahead of its own
	refusals               // what it refuses
}

type hostAddress struct {
	service, host string
	Resolved
}

// examine looks at an account: where it is, what time it has, and what it allows.
func (p *patient) examine(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { p.lookUp(ctx) })
	if p.askTime(ctx) {
		p.try(ctx)
	}
	wg.Wait()
}

// askTime reports whether the account answers. The date is a moment between the request and its
// answer, in whole seconds.
func (p *patient) askTime(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dateTimeout)
	defer cancel()
	s, ok := storage.As[dated](p.of.Storage)
	if !ok {
		return true // the trial finds out
	}
	sent := time.Now()
	date, err := s.Date(ctx)
	if err == nil {
		half := time.Since(sent) / 2
		p.off = sent.Add(half).Sub(date.Add(500 * time.Millisecond))
		p.facts.Clock = new(p.off.Round(100 * time.Millisecond).Seconds())
		return true
	}
	if storage.Is(err, storage.Auth) { // no token could be had for it
		p.refuse("anything", err)
		p.everything = true
		return false
	}
	p.silent = err
	return false
}

// now is the time by the account's clock, as far as it is known.
func (p *patient) now() time.Time { return time.Now().Add(-p.off) }

// lookUp resolves the names of the account's services.
func (p *patient) lookUp(ctx context.Context) {
	s, ok := storage.As[hosted](p.of.Storage)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dateTimeout)
	defer cancel()
	queue, table := s.Hosts()
	hosts := []hostAddress{{service: "queue", host: queue}, {service: "table", host: table}}
	if s, ok := storage.As[blobHosted](p.of.Storage); ok && len(p.c.boxes) > 0 {
		// Private endpoints are one a service. Why an address is not known, tryBlobs says.
		host, _ := s.BlobHost()
		hosts = append(hosts, hostAddress{service: "blob", host: host})
	}
	for _, h := range hosts {
		if h.host == "" || numeric(h.host) || local(h.host) || proxied(h.host) {
			continue
		}
		var err error
		h.Resolved, err = p.c.o.Resolve(ctx, h.host)
		facts := Host{Name: h.host, Addresses: []string{}}
		for _, a := range h.Addresses {
			facts.Addresses = append(facts.Addresses, a.Unmap().String())
		}
		p.facts.Hosts = append(p.facts.Hosts, facts)
		var de *net.DNSError
		switch {
		case err == nil && len(h.Addresses) > 0:
			p.resolved = append(p.resolved, h)
		case errors.As(err, &de) && de.IsNotFound, err == nil:
			p.unnamed = append(p.unnamed, h.host)
		}
	}
}

// proxied reports whether a proxy looks the name up. Then this machine need not know the name.
func proxied(host string) bool {
	by, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: host})
	return err == nil && by != nil
}

func numeric(host string) bool {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// local are the names that mean this machine, which the driver does not look up.
func local(host string) bool { return host == "localhost" || strings.HasSuffix(host, ".localhost") }

// private reports whether all addresses are of a network of one's own.
func (h hostAddress) private() bool {
	return !slices.ContainsFunc(h.Addresses, func(a netip.Addr) bool {
		a = a.Unmap()
		return !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast()
	})
}

// aliased reports whether the account has a private endpoint: its name then stands for one of the
// zone privatelink, which only the networks of that endpoint resolve to a private address.
func (h hostAddress) aliased() bool { return strings.Contains(h.Canonical, ".privatelink.") }

// patientsSay turns what was learned of each account to findings.
func (c *checkup) patientsSay() {
	for i := range c.patients {
		p := &c.patients[i]
		name := p.of.Name
		unnamed := len(p.unnamed) > 0
		if slices.Contains(c.unused, name) && !c.saysUnused(p) {
			continue
		}
		for _, host := range p.unnamed {
			c.find(CheckDNS, Error, name, "getent hosts "+host, "the name %s does not resolve", host)
		}
		shut := p.network()
		switch {
		case shut:
		case p.silent != nil && unnamed: // it cannot answer either
		case p.silent != nil && storage.Is(p.silent, storage.Missing):
			c.find(CheckAccount, Error, name, "az storage account show --name "+name,
				"the account does not exist or is disabled: %v", p.silent)
		case p.silent != nil:
			c.find(CheckAccount, Error, name, c.ping(p), "the account does not answer: %v", p.silent)
		default:
			p.say()
		}
		c.signature(p)
	}
}

// saysUnused tells of an account that the workload does not use. Such an account need not exist;
// more is told only if it does.
func (c *checkup) saysUnused(p *patient) (there bool) {
	mend, state := c.command("distributor accounts add %s", p.of.Name), ""
	there = p.silent == nil && len(p.unnamed) == 0 && !p.everything
	if !there {
		mend, state = "take it out of "+c.o.Config, ", nor can it be used from here"
	}
	c.find(CheckUnused, Warning, p.of.Name, mend,
		"%s has the account, and the workload does not use it%s", c.o.Config, state)
	return there
}

// newSignature is the command that makes a shared access signature that may do everything.
func (p *patient) newSignature() string {
	services := "qt"
	if len(p.c.boxes) > 0 {
		services = "bqt"
	}
	return "az storage account generate-sas --account-name " + p.of.Name +
		" --services " + services +
		" --resource-types sco --permissions rwdlacup --https-only --expiry DATE"
}

// signature tells of a shared access signature that ends soon.
func (c *checkup) signature(p *patient) {
	ends := azure.Options{
		ConnectionString: p.of.ConnectionString, Endpoint: p.of.Endpoint,
		TableEndpoint: p.of.TableEndpoint, BlobEndpoint: p.of.BlobEndpoint,
	}.SignatureEnds()
	left := ends.Sub(p.now())
	if ends.IsZero() || left >= azure.EndsSoon || p.everything {
		return
	}
	c.find(CheckCredentials, Warning, p.of.Name, p.newSignature(),
		"its shared access signature ends at %s, in %v", ends.UTC().Format(time.RFC3339),
		left.Round(time.Minute))
}

// ping shows whether the account's service can be reached.
func (c *checkup) ping(p *patient) string {
	if s, ok := storage.As[hosted](p.of.Storage); ok {
		return "curl -sS -o /dev/null -w '%{http_code}\\n' '" + s.Endpoint() + "?comp=list'"
	}
	return c.command("distributor status")
}

// network tells of names that resolve to an address where the account cannot be used. shut says
// that this is why the account does not answer, or refuses everything.
func (p *patient) network() (shut bool) {
	var in, out hostAddress // the last of each
	for _, h := range p.resolved {
		if h.private() {
			in = h
		} else {
			out = h
		}
	}
	if in.host != "" && out.host != "" {
		p.c.find(CheckEndpoint, Warning, p.of.Name, "getent hosts "+in.host+" "+out.host,
			"its %s service has a private address (%s) and its %s service a public one (%s); "+
				"a private endpoint is for one service only, so make one for each", in.service,
			in.Addresses[0].Unmap(), out.service, out.Addresses[0].Unmap())
		return false
	}
	for _, h := range p.resolved {
		if h.aliased() && !h.private() && (p.silent != nil || p.everything) {
			p.c.find(
				CheckEndpoint,
				Error,
				p.of.Name,
				"getent hosts "+h.host,
				"its %s service has a private endpoint, and here its name resolves to the public address %s, "+
					"which does not let this machine in; link the zone %s to this network",
				h.service,
				h.Addresses[0].Unmap(),
				h.Canonical[strings.Index(h.Canonical, "privatelink."):],
			)
			return true
		}
	}
	return false
}

// clocks compares this machine's clock with those of the accounts: if it is wrong against most of
// them, that is one finding.
func (c *checkup) clocks() {
	var off []*patient
	for i := range c.patients {
		if p := &c.patients[i]; p.off.Abs() >= clockOff {
			off = append(off, p)
		}
	}
	if len(off) == 0 {
		return
	}
	slices.SortFunc(off, func(a, b *patient) int { return strings.Compare(a.of.Name, b.of.Name) })
	var names []string
	worst := off[0]
	for _, p := range off {
		names = append(names, p.of.Name)
		if p.off.Abs() > worst.off.Abs() {
			worst = p
		}
	}
	severity, way, means := Warning, "ahead of", "signatures that were just made may be refused"
	if worst.off.Abs() >= clockBroken {
		severity, means = Error, "the accounts refuse what is signed 15 minutes ago or in the future"
	}
	if worst.off < 0 {
		way = "behind"
	}
	c.find(CheckClock, severity, c.o.Host, "timedatectl set-ntp true",
		"the clock of this machine is %v %s that of %s: %s", worst.off.Abs().Round(time.Second),
		way, setup.SomeOf(names, 4), means)
}
