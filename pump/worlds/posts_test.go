package worlds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// posting is senders that take posts with keys, of which one after the other is killed.
type posting struct {
	w       *testworld.World
	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	senders []*distributor.Sender
	made    int
}

// stand puts another sender into the place of one.
func (p *posting) stand(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	cfg := p.w.Config(fmt.Sprint("sender", p.made), p.w.Cfg.Accounts[0].Queues)
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{KeepKeys: 24 * time.Hour})
	must(p.w.T, err)
	p.senders[i] = s
}

// kill ends a sender as kill -9 does.
func (p *posting) kill(i int) {
	p.mu.Lock()
	s := p.senders[i]
	p.mu.Unlock()
	p.w.Crash(s.State().Instance)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	go func() { _, _ = s.Close(gone) }()
	p.stand(i)
}

func (p *posting) n(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(most)
}

// post posts until a sender has answered that all is sent.
func (p *posting) post(ctx context.Context, key string, bodies ...string) error {
	var tasks []source.Record
	for _, body := range bodies {
		tasks = append(tasks, source.Record{Body: []byte(body)})
		if len(key)%2 == 0 { // else they have no keys
			tasks[len(tasks)-1].Key = []byte(body)
		}
	}
	for {
		i := p.n(len(p.senders))
		p.mu.Lock()
		s := p.senders[i]
		p.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := s.Post(within, key, tasks...)
		cancel()
		if err == nil && p.n(10) > 0 { // the answer may be lost
			return nil
		}
		if errors.Is(err, distributor.ErrOtherTasks) || errors.Is(err, distributor.ErrKeyOver) || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		time.Sleep(time.Duration(p.n(1000)) * time.Millisecond)
	}
}

// Clients post parents with keys, and the handler of a parent posts its children under a key made of
// the parent's identity. Senders are killed, answers are lost, posts are repeated, and handlers fail
// after they have posted: each child is handled once.
func TestPostsWithKeysAreDoneOnceUnderKills(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				p := &posting{w: w, random: rand.New(rand.NewPCG(seed, 1)), senders: make([]*distributor.Sender, 2)}
				p.stand(0)
				p.stand(1)
				h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
					name, is := strings.CutPrefix(string(task.Body), "parent ")
					if !is {
						return nil
					}
					children := []string{name + " a", name + " b", name + " c"}
					err := p.post(ctx, testworld.Identity(task)+"/children", children...)
					if err == nil && p.n(5) == 0 {
						err = testworld.ErrFlop
					}
					return err
				}}
				all := []*testworld.Started[*processor.Processor, processor.Summary]{
					testworld.Begun(w, processor.New, "p", h, processor.Options{}),
					testworld.Begun(w, processor.New, "q", h, processor.Options{}),
				}
				lossy := w.Sim.Inject(azsim.Rule{Operations: []string{"PutMessage", "Batch"}, Fault: azsim.AnswerLost, Probability: 0.05})
				var clients sync.WaitGroup
				for c := range 4 {
					clients.Go(func() {
						for n := range 10 {
							name := fmt.Sprintf("%d/%d", c, n)
							must(t, p.post(t.Context(), "key "+name, "parent "+name+"/0", "parent "+name+"/1"))
						}
					})
				}
				for range 8 {
					time.Sleep(time.Duration(p.n(4000)) * time.Millisecond)
					p.kill(p.n(2))
				}
				clients.Wait()
				lossy.Remove()
				time.Sleep(10 * time.Minute)
				for _, s := range p.senders {
					must(t, proof.ErrOf(s.Close(t.Context())))
				}
				time.Sleep(2 * time.Minute)
				testworld.StopAll(all)
				children := map[string]int{}
				for _, task := range h.Order {
					if !strings.HasPrefix(string(task.Body), "parent ") {
						children[string(task.Body)]++
					}
				}
				for name, n := range children {
					proof.Same(t, n, 1, "child", name, "handled … times")
				}
				proof.Same(t, len(children), 4*10*2*3, "children were handled")
				runs, err := w.AllRuns().List(t.Context(), 100)
				must(t, err)
				for _, run := range runs {
					if run.Mode == "posts" && run.Sealed != nil && run.State != "closed" {
						t.Errorf("run %s of %s is %s with %d tasks", run.ID, run.Instance, run.State, run.Tasks)
					}
				}
			})
		})
	}
}
