package handlers

import (
	"math/big"
	"strconv"
	"strings"
)

// decimal is an exact number: a coefficient times ten to the power of an exponent. Nothing changes
// it once it is made. The zero value is 0.
type decimal struct {
	coefficient *big.Int // nil: 0
	exponent    int
}

// parseDecimal reads a number as JSON writes it, if it is between 10^-most and 10^(most+1), or 0.
func parseDecimal(text string, most int) (d decimal, ok bool) {
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.ParseInt(text[at+1:], 10, 32)
		if err != nil {
			return d, false // it is a number, so it is out of range
		}
		d.exponent, text = int(exponent), text[:at]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	d.exponent -= len(fraction)
	// The last digit and the first one, as powers of ten.
	last, first := d.exponent, d.exponent+len(strings.TrimLeft(whole+fraction, "-0"))-1
	switch {
	case first < last: // 0, with any exponent
		return decimal{}, true
	case last < -most || first > most:
		return decimal{}, false
	}
	d.coefficient, ok = new(big.Int).SetString(whole+fraction, 10)
	return d, ok
}

// at is the coefficient for an exponent that is not greater than the number's own.
func (d decimal) at(exponent int) *big.Int {
	switch {
	case d.coefficient == nil:
		return new(big.Int)
	case d.exponent == exponent:
		return d.coefficient
	}
	return new(big.Int).Mul(d.coefficient, powerOfTen(d.exponent-exponent))
}

func powerOfTen(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

func (d decimal) add(e decimal) decimal {
	least := min(d.exponent, e.exponent)
	return decimal{new(big.Int).Add(d.at(least), e.at(least)), least}
}

// String has no exponent and no zeros at the end of a fraction.
func (d decimal) String() string {
	if d.exponent >= 0 {
		return d.at(0).String()
	}
	ratio := new(big.Rat).SetFrac(d.at(d.exponent), powerOfTen(-d.exponent))
	digits := ratio.FloatString(-d.exponent)
	return strings.TrimSuffix(strings.TrimRight(digits, "0"), ".")
}
