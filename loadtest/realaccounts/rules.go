package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// rule is one statement of azsim/AZURE.md about the service, and how to ask for it. Its check is
// the answer of an account beside that of the simulator.
type rule struct {
	id   string // as AZURE.md names the check
	says string
	mark string // how AZURE.md knows it: MEM, INF, open, own choice, DOC
	part string // partRules, or partLimits: one prober measures the load for all its rules

	// ask gives an answer in words, which are the same if the services do the same, and what else was
	// seen. An [undecided] error says why there is no answer.
	ask asking
	// want is the answer where the simulator has no part in it.
	want string
}

// asking is how a rule is asked.
type asking func(ctx context.Context, p *prober) (answer, detail string, err error)

// undecided is why a rule could not be judged.
type undecided string

func (u undecided) Error() string { return string(u) }

// allRules are the rules of both parts.
func allRules() []rule {
	var all []rule
	for _, group := range [][]rule{
		tableRules, batchRules, queueRules, serviceRules, namesRules, documentedRules, limitRules,
	} {
		all = append(all, group...)
	}
	return all
}

// The verdicts on a rule.
const (
	same       = "same"
	different  = "different"
	notDecided = "not decided"
)

// result is a rule as both sides answer it.
type result struct{ account, simulator, verdict, detail string }

// judged is what one side says of a rule.
type judged struct {
	answer, detail string
	err            error
}

func (r *rule) judge(ctx context.Context, p *prober) judged {
	var j judged
	j.answer, j.detail, j.err = r.ask(ctx, p)
	return j
}

// result compares what both sides say.
func (r *rule) result(account, simulator judged) (res result) {
	res = result{account: account.answer, simulator: simulator.answer, detail: account.detail}
	if r.want != "" {
		res.simulator, simulator.err = r.want, nil
	}
	var u undecided
	switch {
	case errors.As(account.err, &u):
		res.verdict, res.account, res.detail = notDecided, "", u.Error()
	case account.err != nil:
		res.verdict, res.account = different, "no answer: "+account.err.Error()
	case simulator.err != nil:
		res.verdict, res.simulator = notDecided, ""
		res.detail = "the simulator gives no answer: " + simulator.err.Error()
	case res.account == res.simulator:
		res.verdict = same
	default:
		res.verdict = different
	}
	return res
}

// ruleTimeout bounds one rule: a name may take a minute and a half to be free.
const ruleTimeout = 4 * time.Minute

// bothSides asks the account and the simulator at the same time, because some rules wait. Rules
// that need load are asked one after the other, because they share this machine.
func (r *rule) bothSides(ctx context.Context, account, simulator *prober) result {
	if r.part == partLimits {
		here := r.judge(ctx, account)
		return r.result(here, r.judge(ctx, simulator))
	}
	ctx, cancel := context.WithTimeout(ctx, ruleTimeout)
	defer cancel()
	other := make(chan judged, 1)
	go func() {
		if r.want != "" {
			other <- judged{}
			return
		}
		other <- r.judge(ctx, simulator)
	}()
	here := r.judge(ctx, account)
	return r.result(here, <-other)
}

// newProber asks an account that was opened for a part of the run with a prefix.
func newProber(t *target, a opened, prefix, part string) (*prober, error) {
	u, err := url.Parse(t.queues)
	if err != nil {
		return nil, err
	}
	p := &prober{
		account: a, prefix: prefix, keyed: t.credential() == "key", pace: accountPace,
		pinned: t.ServiceVersion != "",
		hosted: net.ParseIP(u.Hostname()) == nil && !strings.HasSuffix(u.Hostname(), "localhost"),
	}
	if part == partLimits {
		p.numbered.Store(100) // the names of the rules come before
	}
	return p, nil
}

// simulatedName is the name of the simulated account.
const simulatedName = "simulated1"

// simulated is a prober of a simulator in this process. Limits are as published unless given.
func simulated(limits azsim.Limits) (*prober, error) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: simulatedName}}, Limits: limits})
	a, err := Account{Connection: sim.ConnectionString(simulatedName)}.open(sim.Transport())
	if err != nil {
		return nil, err
	}
	return &prober{
		account: a, prefix: newPrefix(time.Now()), keyed: true, hosted: true, pace: simulatorPace,
	}, nil
}

// joined puts the answers to several questions into one.
func joined(
	ctx context.Context, p *prober, about []string, questions ...question,
) (string, string, error) {
	answers := make([]string, len(questions))
	for i, q := range questions {
		answer, err := p.answer(ctx, q)
		if err != nil {
			return "", "", err
		}
		answers[i] = fmt.Sprintf("%s: %s", about[i], answer)
	}
	return strings.Join(answers, "; "), "", nil
}
