package operate

import "github.com/queuepump/queuepump/internal/admin"

// moneyText is an amount with its currency; a small amount has as many digits as matter.
func moneyText(x float64, currency string) string {
	return admin.Amount(x, plain(currency))
}
