package realaccounts

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// issuer is a credential.
type issuer struct{}

func (issuer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "a-token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestTheGatewayCarriesEveryCredential: what a client of an account signs is good at the account
// although it went through the gateway, which has no credential.
func TestTheGatewayCarriesEveryCredential(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}, Bearer: func(token string, _ time.Time) error {
		if token != "a-token" {
			return errors.New("another token")
		}
		return nil
	}})
	key, err := aztables.NewSharedKeyCredential("one", sim.Key("one"))
	must(t, err)
	sas, err := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(time.Hour), Services: "bqt", ResourceTypes: "sco", Permissions: "rwdlacup",
	}.Sign(key)
	must(t, err)
	for name, a := range map[string]Account{
		"key":                          {Connection: sim.ConnectionString("one")},
		"signature of a string":        {Connection: "AccountName=one;SharedAccessSignature=" + sas.Encode()},
		"signature behind the address": {Connection: "https://one.queue.core.windows.net/?" + sas.Encode()},
		"token":                        {Connection: "https://one.queue.core.windows.net"},
	} {
		targets, err := targetsOf([]Account{a})
		must(t, err)
		b := newBudget(1000, 0, func() {})
		g, err := openGateways(b, sim.Transport(), targets, partPump)
		must(t, err)
		o := g.accounts[0].options()
		o.Name = "one"
		if a.credential() == "token" {
			o.Credential = issuer{}
		}
		moved, err := azure.Open(o)
		must(t, err)
		table := moved.Table("t" + strings.ReplaceAll(name, " ", ""))
		q := moved.Queue("q-" + strings.ReplaceAll(name, " ", "-"))
		box := moved.Container("b-" + strings.ReplaceAll(name, " ", "-"))
		err = errors.Join(table.Create(t.Context()), q.Create(t.Context()), box.Create(t.Context()), box.Put(t.Context(), "a", []byte("x"), nil))
		_, put := q.Put(t.Context(), []byte("x"), 0)
		_, batch := table.Transact(t.Context(), []storage.Write{
			{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "1"}},
			{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "2"}},
		})
		proof.Is(t, errors.Join(err, put, batch), nil, name)
		if queues, others, _ := b.of(partPump); queues != 2 || others != 4 || b.used != 4+2*13 {
			t.Errorf("%s: %d requests to queues, %d others were counted, as %d", name, queues, others, b.used)
		}
		targets[0].spoiled.Store(true)
		_, put = q.Put(t.Context(), []byte("x"), 0)
		for _, err := range []error{put, table.Create(t.Context()), box.Create(t.Context())} {
			if !storage.Is(err, storage.Auth) {
				t.Errorf("%s: a credential that was made wrong: %v", name, err)
			}
		}
		g.close()
	}
}

// TestAGatewayDoesNotAnswerForTheAccount: what it cannot send is a broken connection, of which a
// client concludes nothing.
func TestAGatewayDoesNotAnswerForTheAccount(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	a := Account{Connection: sim.ConnectionString("one")}
	var spent atomic.Int64
	targets, err := targetsOf([]Account{a})
	must(t, err)
	g, err := openGateways(newBudget(1, 0, func() { spent.Add(1) }), sim.Transport(), targets, partPump)
	must(t, err)
	defer g.close()
	moved, err := g.accounts[0].open(nil)
	must(t, err)
	must(t, moved.Queue("queue").Create(t.Context()))
	if _, err := moved.Queue("queue").Put(t.Context(), []byte("x"), 0); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("beyond the budget: %v", err)
	}
	if n := sim.Stats().Count("", ""); n != 1 || spent.Load() == 0 {
		t.Errorf("%d requests were sent of a budget of one; told %d times", n, spent.Load())
	}
}
