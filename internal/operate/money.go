package operate

import "github.com/queuepump/queuepump/internal/admin"

// moneyText is an amount with its currency: of small ones as many digits as say something.
func moneyText(x float64, currency string) string {
	return admin.Amount(x, plain(currency))
}
