// Package settings completes and checks configurations.
package settings
