// Package backlog holds the messages that were fetched and whose tasks were not started, within
// bounds of tasks and bytes, and lets tasks start in order, or one alone.
package backlog
