package realaccounts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/internal/capacity"
)

// plan has `distributor plan` plan the rate that was measured, for the same tasks and accounts, and
// puts what it estimates beside what was measured.
func (r *runner) plan(ctx context.Context, s *site) error {
	p := r.report.Pump
	latency := r.p50("put 1 KiB")
	if latency == 0 {
		latency = 10 * time.Millisecond
	}
	d, err := s.start("distributor plan", "distributor", "plan", "--json", "--rate",
		fmt.Sprint(p.TasksPerSecond), "--handler-seconds", "0.0001", "--input", s.tasks, "--key", "id",
		"--pack", fmt.Sprint(pack), "--latency", latency.Round(time.Microsecond).String(),
		"--queue-limit", "2000", "--account-limit", "20000")
	if err != nil {
		return err
	}
	err = d.wait(ctx)
	if ctx.Err() != nil {
		return err
	}
	var plan capacity.Plan
	// status 1 with a plan: it does not fit
	if e := json.Unmarshal([]byte(d.out.String()), &plan); e != nil {
		return fmt.Errorf("the plan cannot be read: %w", errorOf(err, e))
	}
	r.report.Plan = &PlanBeside{
		Rate: plan.Rate, Fits: plan.Fits, Bottleneck: plan.Bottleneck,
		LatencyMilliseconds: milliseconds(latency),
		Rows: []PlanRow{
			{"tasks a message", plan.Packing.Tasks, p.TasksPerMessage},
			{"requests to queues for a thousand tasks", plan.Requests.PerThousand, p.RequestsPerThousand},
			{
				"cost of a million tasks in requests, " + plan.Prices.Currency, requestMoney(&plan),
				p.CostPerMillion,
			},
		},
	}
	return nil
}

// requestMoney is what a million tasks cost in requests, without machines.
func requestMoney(p *capacity.Plan) float64 {
	if p.Money.Total == 0 {
		return 0
	}
	return p.Money.PerMillion * (p.Money.Queues + p.Money.Tables) / p.Money.Total
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
