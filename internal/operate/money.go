package operate

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/status"
)

// moneyText is an amount with its currency: of small ones as many digits as say something.
func moneyText(x float64, currency string) string {
	digits := 2
	if x > 0 && x < 0.995 {
		digits = 4
	}
	return strings.TrimSpace(humanize.FormatFloat("#,###."+strings.Repeat("#", digits), x) + " " + plain(currency))
}

// moneyLine is what the day has cost; empty if that is not known.
func moneyLine(m *status.Money) string {
	if m.DayCost == nil {
		return ""
	}
	parts := []string{"today " + moneyText(*m.DayCost, m.Prices.Currency)}
	var queues, tables uint64
	most, name := 0.0, ""
	for _, a := range m.Accounts {
		queues, tables = queues+a.Requests.Queue, tables+a.Requests.Table
		if a.Cost > most {
			most, name = a.Cost, a.Name
		}
	}
	if queues+tables > 0 {
		parts = append(parts, fmt.Sprintf("%s requests to queues, %s to tables", number(queues), number(tables)))
	}
	if len(m.Accounts) > 1 && name != "" {
		parts = append(parts, fmt.Sprintf("most of account %s, %s", plain(name), moneyText(most, "")))
	}
	if m.PerDay != nil && *m.PerDay > 0 {
		parts = append(parts, moneyText(*m.PerDay, m.Prices.Currency)+" a day at this rate")
	}
	if m.CapPerDay != nil {
		text := "at most " + moneyText(*m.CapPerDay, "")
		switch {
		case m.HoldBack > 0:
			text += fmt.Sprintf(", so gets are held back by %s", cli.Plural(int64(m.HoldBack), "processor"))
		case m.Slowed > 0:
			text += fmt.Sprintf(", so empty queues are polled more slowly by %s", cli.Plural(int64(m.Slowed), "processor"))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " · ")
}
