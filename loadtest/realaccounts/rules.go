package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// rule is one statement of azsim/AZURE.md about the service, and how to ask for it. Its check is
// the answer of an account beside that of the simulator.
type rule struct {
	id   string // as AZURE.md names the check
	says string
	mark string // how AZURE.md knows it: MEM, INF, open, own choice, DOC
	part string // partRules or partLimits

	// ask gives an answer in words that are the same if the services do the same, and what else
	// was seen. An error of [undecided] says why there is no answer.
	ask func(ctx context.Context, p *prober) (answer, detail string, err error)
	// want is the answer where the simulator has no part in it.
	want string
}

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
func (r *rule) result(account, simulator judged) RuleResult {
	res := RuleResult{
		Check: r.id, Says: r.says, Mark: r.mark,
		Account: account.answer, Simulator: simulator.answer, Detail: account.detail,
	}
	if r.want != "" {
		res.Simulator, simulator.err = r.want, nil
	}
	var u undecided
	switch {
	case errors.As(account.err, &u):
		res.Verdict, res.Account, res.Detail = notDecided, "", u.Error()
	case account.err != nil:
		res.Verdict, res.Account = different, "no answer: "+account.err.Error()
	case simulator.err != nil:
		res.Verdict, res.Simulator = notDecided, ""
		res.Detail = "the simulator gives no answer: " + simulator.err.Error()
	case res.Account == res.Simulator:
		res.Verdict = same
	default:
		res.Verdict = different
	}
	return res
}

// ruleTimeout bounds one rule: a name may take a minute and a half to be free.
const ruleTimeout = 4 * time.Minute

// rules asks the rules that need no load, several at once: some of them wait.
func (r *runner) rules(ctx context.Context) error {
	account, err := r.prober(partRules)
	if err != nil {
		return err
	}
	simulator, err := simulated(azsim.Limits{})
	if err != nil {
		return err
	}
	chosen := r.chosen(partRules)
	results := make([]RuleResult, len(chosen))
	slots := make(chan struct{}, 8)
	var all sync.WaitGroup
	for i := range chosen {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			results[i] = bothSides(ctx, &chosen[i], account, simulator)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.report.Rules = append(r.report.Rules, results...)
	return nil
}

// bothSides asks the account and the simulator at the same time, because some rules wait.
func bothSides(ctx context.Context, rule *rule, account, simulator *prober) RuleResult {
	ctx, cancel := context.WithTimeout(ctx, ruleTimeout)
	defer cancel()
	other := make(chan judged, 1)
	go func() {
		if rule.want != "" {
			other <- judged{}
			return
		}
		other <- rule.judge(ctx, simulator)
	}()
	here := rule.judge(ctx, account)
	return rule.result(here, <-other)
}

// chosen are the rules of a part that are to be asked.
func (r *runner) chosen(part string) (list []rule) {
	for _, rule := range allRules() {
		if rule.part == part && (r.o.Rules == nil || r.o.Rules(rule.id)) {
			list = append(list, rule)
		}
	}
	return list
}

// prober asks the first account.
func (r *runner) prober(part string) (*prober, error) {
	t := r.targets[0]
	a, err := r.open(t, part, nil)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(t.queues)
	if err != nil {
		return nil, err
	}
	p := &prober{
		account: a, prefix: r.prefix, keyed: t.credential() == "key", pace: accountPace,
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
