//go:build !planted

package pump

const planted mistake = ""
