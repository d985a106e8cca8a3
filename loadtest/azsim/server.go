package azsim

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// call is one request as it came in, by TCP or through a Transport, before it is parsed.
type call struct {
	service  service // "" if only the host can tell
	method   string
	host     string
	path     string // escaped, as it was sent
	rawQuery string
	header   http.Header // canonical keys
	body     io.Reader   // may be nil
	length   int64       // of the body; negative: not said
	from     netip.Addr
	secure   bool   // came by https
	instance string // which client, for rules and for P9
	spared   bool   // by rules and darkness
}

// delivery is what becomes of an answer on its way to the client.
type delivery int

const (
	answered  delivery = iota
	cutShort           // half the body, then the connection breaks
	lost               // the connection breaks without an answer
	noConnect          // the connection was refused
	noHost             // the host's name was not found
	gaveUp             // the client's context ended first
)

func (d delivery) String() string {
	return [...]string{"answered", "cut short", "lost", "refused", "no host", "given up"}[d]
}

// outcome is what the client gets to see.
type outcome struct {
	reply
	delivery
}

// maxQueueBody bounds what is read of a request to the queue service: 65,536 characters, each
// perhaps escaped (&quot; is six bytes), and the XML around them. maxTableBody is the bound on an
// entity group transaction.
const (
	maxQueueBody = 6*maxMessageText + 4096
	maxTableBody = 4 << 20
)

// serve takes a call through all the stations that service.go lists.
func (s *Sim) serve(ctx context.Context, c *call) outcome {
	r := s.newRequest(c)
	if r.account == nil {
		return s.turnAway(ctx, r, r.fail(http.StatusNotFound, "ResourceNotFound", ""))
	}
	op, rep, err := s.read(c, r)
	var out outcome
	switch dark := false; {
	case err != nil, !s.enter(ctx, c, r):
		out.delivery = gaveUp
	default:
		r.spared = c.spared
		if out, dark = s.dark(ctx, r); dark {
			break
		}
		if op == nil {
			if r.meets(Disabled) {
				rep = r.disabled()
			}
			out = s.turnAway(ctx, r, rep)
			break
		}
		p := s.plan(c.instance, r, op)
		r.mischief = p.mischief
		out = s.travel(ctx, c, r, op, &p)
		if out.status == 0 { // it never acted
			s.stats.request(r, op, &out.reply)
		}
	}
	s.note(ctx, c, r, op, &out)
	return out
}

// read reads the rest of a request and finds the operation, or the answer to a request without one.
// It is an error if the client broke off.
func (s *Sim) read(c *call, r *request) (*operation, reply, error) {
	if rep, err := r.readBody(c); err != nil {
		return nil, reply{}, err
	} else if rep != nil {
		return nil, *rep, nil
	}
	op, rep := s.route(r)
	return op, rep, nil
}

// turnAway answers a request without an operation. It also takes its time: a client that asks again
// at once must not stop virtual time.
func (s *Sim) turnAway(ctx context.Context, r *request, rep reply) outcome {
	if l, _ := s.latencyOf(r.service); !orderSleep(ctx, l) {
		return outcome{delivery: gaveUp}
	}
	return s.answer(r, nil, rep)
}

// travel is the way there, the operation, and the way back.
func (s *Sim) travel(ctx context.Context, c *call, r *request, op *operation, p *plan) outcome {
	if !s.pass(ctx, p.before, drawMix(p.mischief.hash, 7)) {
		return outcome{delivery: gaveUp}
	}
	r.now = s.now()
	switch {
	case p.is(FailBefore):
		return outcome{delivery: lost}
	case p.is(HangBefore):
		<-ctx.Done()
		return outcome{delivery: gaveUp}
	}
	if out, dark := s.dark(ctx, r); dark {
		return out
	}
	var rep reply
	if p.is(Answer) {
		rep = p.decided.rule.reply(r)
	} else {
		rep = s.act(c, r, op)
	}
	out := s.answer(r, op, rep)
	switch {
	case p.is(AnswerAfter):
		out.reply = s.common(r, p.decided.rule.reply(r))
	case p.is(AnswerLost), p.is(CutBody) && len(out.body) == 0:
		out.delivery = lost
	case p.is(CutBody):
		out.delivery = cutShort
	case p.is(HangAfter):
		<-ctx.Done()
		out.delivery = gaveUp
		return out
	}
	if !s.pass(ctx, p.after, drawMix(p.mischief.hash, 8)) {
		out.delivery = gaveUp
	} else if r.meets(Gone) || !r.spared && darkness(r.account.dark.Load()) != lit {
		out.delivery = lost // it went while the answer was on its way
	}
	return out
}

// act authorises, charges and carries out.
func (s *Sim) act(c *call, r *request, op *operation) reply {
	if r.meets(Disabled) {
		return r.disabled()
	}
	if rep := s.authorise(c, r, op); rep != nil {
		return *rep
	}
	ch, refusal := s.admit(r, op)
	if refusal != nil {
		s.stats.throttled.Add(1)
		return *refusal
	}
	rep := op.run()
	if refusal := s.settle(ch, r, op, &rep); refusal != nil {
		s.stats.throttled.Add(1)
		return *refusal
	}
	return rep
}

// newRequest reads what the line and the headers say.
func (s *Sim) newRequest(c *call) *request {
	name, svc, path, base := locate(c)
	r := &request{
		method:  c.method,
		path:    path,
		header:  c.header,
		service: svc,
		baseURL: base,
		id:      drawGUID(s.config.Seed, requestWord, s.requests.Add(1)).String(),
		now:     s.now(),
		version: c.header.Get("X-Ms-Version"),
	}
	// As much of it as can be read: a broken parameter is missing, and refused as missing.
	r.query, _ = url.ParseQuery(c.rawQuery)
	r.version = cmp.Or(r.version, r.query.Get("sv")) // a SAS names the version it is to be read by
	r.account = s.accounts[name]
	if r.account == nil {
		r.account = s.accounts[strings.TrimSuffix(name, "-secondary")]
		r.secondary = r.account != nil
	}
	return r
}

// errShortBody says that a request's body broke off.
var errShortBody = errors.New("azsim: the request's body broke off")

// readBody reads the body within its bound. It is an error if the client
// broke off; a reply, if the body is refused.
func (r *request) readBody(c *call) (*reply, error) {
	limit, named := int64(maxQueueBody), "65536"
	switch r.service {
	case tableService:
		limit, named = maxTableBody, "4194304"
	case blobService:
		limit, named = maxBlobBody, itoa(maxBlobBody)
	}
	switch {
	case c.length < 0:
		return new(r.fail(http.StatusLengthRequired, "MissingContentLengthHeader", "")), nil
	case c.length > limit:
		return new(r.fail(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "",
			element{"MaxLimit", named})), nil
	case c.length == 0 || c.body == nil:
		return nil, nil
	}
	r.body = make([]byte, c.length)
	if _, err := io.ReadFull(c.body, r.body); err != nil {
		return nil, errShortBody
	}
	return nil, nil
}

// route finds the operation: the core's own, or the backend's.
func (s *Sim) route(r *request) (*operation, reply) {
	if v := r.header.Get("X-Ms-Version"); v != "" && !serviceVersions[v] {
		return nil, r.fail(http.StatusBadRequest, "InvalidHeaderValue", "",
			element{"HeaderName", "x-ms-version"}, element{"HeaderValue", v})
	}
	if r.secondary && r.method != http.MethodGet && r.method != http.MethodHead {
		return nil, r.fail(http.StatusForbidden, "WriteOperationNotSupportedOnSecondary", "")
	}
	if r.path == "/" && strings.EqualFold(r.query.Get("restype"), "service") {
		return s.routeService(r)
	}
	return r.account.backend(r.service).route(r)
}

// dark is what a request meets at an account that is gone or blacked out.
func (s *Sim) dark(ctx context.Context, r *request) (outcome, bool) {
	if r.spared {
		return outcome{}, false
	}
	if r.meets(Gone) {
		count(&s.stats.blackouts, r.account.name)
		return outcome{delivery: noHost}, true
	}
	switch darkness(r.account.dark.Load()) {
	case refused:
		count(&s.stats.blackouts, r.account.name)
		return outcome{delivery: noConnect}, true
	case hanging:
		count(&s.stats.blackouts, r.account.name)
		<-ctx.Done()
		return outcome{delivery: gaveUp}, true
	}
	return outcome{}, false
}

// answer finishes a reply and counts it.
func (s *Sim) answer(r *request, op *operation, rep reply) outcome {
	s.stats.request(r, op, &rep)
	return outcome{reply: s.common(r, rep)}
}

// note logs a request when it is over, with when it came (or was given up on the
// way) by the server's clock and what the client got to see.
func (s *Sim) note(ctx context.Context, c *call, r *request, op *operation, out *outcome) {
	l := s.config.Log
	if l == nil || !l.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.String("service", string(r.service)), slog.String("method", r.method),
		slog.String("path", r.path), slog.Int("status", out.status), slog.String("code", out.code),
		slog.String("request", r.id), slog.String("instance", c.instance), slog.Time("came", r.now),
		slog.String("delivery", out.delivery.String()),
	}
	if r.account != nil {
		attrs = append(attrs, slog.String("account", r.account.name))
	}
	if op != nil {
		attrs = append(attrs, slog.String("operation", op.name))
	}
	l.LogAttrs(ctx, slog.LevelDebug, "request", attrs...)
}

// common adds the headers that every answer carries (AZURE.md A1).
func (s *Sim) common(r *request, rep reply) reply {
	h := rep.header
	if h == nil {
		h = make(http.Header, 8)
	}
	h["Server"] = serverNames[r.service]
	h["X-Ms-Request-Id"] = []string{r.id}
	if v := r.header.Get("X-Ms-Version"); serviceVersions[v] {
		h["X-Ms-Version"] = []string{v}
	}
	h["Date"] = []string{s.now().Format(http.TimeFormat)}
	if id := r.header.Get("X-Ms-Client-Request-Id"); echoable(id) {
		h["X-Ms-Client-Request-Id"] = []string{id}
	}
	if len(rep.body) == 0 {
		h["Content-Length"] = zeroLength
	}
	rep.header = h
	return rep
}

var (
	serverNames = map[service][]string{
		queueService: {"Windows-Azure-Queue/1.0 Microsoft-HTTPAPI/2.0"},
		tableService: {"Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0"},
		blobService:  {"Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0"},
	}
	zeroLength = []string{"0"}
)

// echoable tells client request ids that are sent back: up to 1,024 visible ASCII characters.
func echoable(id string) bool {
	return id != "" && len(id) <= 1024 &&
		!strings.ContainsFunc(id, func(c rune) bool { return c < '!' || c > '~' })
}
