package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

// cluster are the processes of a test: one distributor and processors, all in this
// process. Their nudges go from one to the other directly (P8.2).
type cluster struct {
	t *test

	mu         sync.Mutex // guards what follows
	reached    map[string]interface{ Nudged(pump.Nudge) }
	processors []*process
	started    int // processors so far, replaced ones included
	failed     error
	failing    chan struct{} // closed when failed is set
}

// process is a processor that runs.
type process struct {
	of   *processor.Processor
	name string
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

func newCluster(t *test) *cluster {
	return &cluster{
		t: t, reached: map[string]interface{ Nudged(pump.Nudge) }{}, failing: make(chan struct{}),
	}
}

// fail notes the first error that ends the test.
func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil && err != nil {
		c.failed = err
		close(c.failing)
	}
}

// config is the configuration of one instance.
func (c *cluster) config(instance string) (pump.Config, error) {
	cfg := c.t.world.Config
	cfg.Workload, cfg.Instance, cfg.Hooks, cfg.Log = c.t.workload, instance, pump.Hooks{}, c.t.o.Log
	cfg.Segments = c.t.segments
	cfg.Delivery = c.delivery()
	// Any address will do: it is never dialled.
	cfg.Admin, cfg.Nudge = instance+":1", c.nudge
	cfg.Accounts = make([]pump.Account, len(cfg.Accounts))
	for i, a := range c.t.world.Config.Accounts {
		st, err := c.t.world.Open(instance, i)
		if err != nil {
			return cfg, err
		}
		m := c.t.meters[i]
		cfg.Accounts[i] = pump.Account{
			Name: m.name, Queues: m.queues, Weight: a.Weight, Storage: &meteredAccount{st, m, c.t.table},
		}
	}
	return cfg, nil
}

func (c *cluster) nudge(_ context.Context, n pump.Nudge) error {
	c.mu.Lock()
	to := c.reached[n.Instance]
	c.mu.Unlock()
	if to == nil {
		return fmt.Errorf("there is no process named %s", n.Instance)
	}
	to.Nudged(n)
	return nil
}

// reach lets a process be nudged.
func (c *cluster) reach(instance string, p interface{ Nudged(pump.Nudge) }) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p == nil {
		delete(c.reached, instance)
		return
	}
	c.reached[instance] = p
}

// start starts one more processor.
func (c *cluster) start(ctx context.Context) (*process, error) {
	c.mu.Lock()
	c.started++
	w := &process{name: fmt.Sprintf("processor-%03d", c.started), done: make(chan struct{})}
	c.mu.Unlock()
	cfg, err := c.config(w.name)
	if err != nil {
		return nil, err
	}
	w.of, err = processor.New(cfg, pump.HandlerFunc(c.t.handle),
		processor.Options{Concurrency: c.t.o.Concurrency})
	if err != nil {
		return nil, err
	}
	// they finish the sent tasks after the test was stopped
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.reach(w.name, w.of)
	go func() {
		defer close(w.done)
		_, err := w.of.Run(ctx)
		c.reach(w.name, nil)
		if err != nil {
			c.fail(fmt.Errorf("%s: %w", w.name, err))
		}
	}()
	return w, nil
}

// grow starts processors until there are n.
func (c *cluster) grow(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		have := len(c.processors)
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		w, err := c.start(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.processors = append(c.processors, w)
		c.mu.Unlock()
	}
}

// replace stops the i-th processor as a roll-out would, and then starts another one.
func (c *cluster) replace(ctx context.Context, i int) error {
	c.mu.Lock()
	old := c.processors[i]
	c.mu.Unlock()
	old.stop()
	<-old.done
	w, err := c.start(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.processors[i] = w
	c.mu.Unlock()
	return nil
}

// settled waits until every processor holds its share, but no longer than that takes
// where all is well.
func (c *cluster) settled(ctx context.Context) error {
	const enough = time.Minute
	for began := time.Now(); time.Since(began) < enough; {
		ready := true
		c.mu.Lock()
		for _, w := range c.processors {
			s := w.of.State()
			ready = ready && s.Phase == "working" &&
				(s.Cluster.Segments == 0 || s.Cluster.Missing == 0 && s.Cluster.Members >= len(c.processors))
		}
		err := c.failed
		c.mu.Unlock()
		if ready || err != nil {
			return err
		}
		if err := Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the processors have not found their shares within a minute")
}

// end stops all processors and waits for them.
func (c *cluster) end() {
	c.mu.Lock()
	all := c.processors
	c.processors = nil
	c.mu.Unlock()
	for _, w := range all {
		w.stop()
	}
	for _, w := range all {
		<-w.done
	}
}

// Sleep waits for a time, or for the end of ctx, whose cause is its error.
func Sleep(ctx context.Context, d time.Duration) error {
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-over.Done()
	return context.Cause(ctx)
}

// delivery is the delivery mode of the workload, empty for the default.
func (c *cluster) delivery() pump.Delivery {
	return cmp.Or(c.t.o.Delivery, c.t.world.Config.Delivery)
}
