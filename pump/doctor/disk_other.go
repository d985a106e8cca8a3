//go:build !linux && !darwin && !windows

package doctor

import "errors"

func freeDisk(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }
