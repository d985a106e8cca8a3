// Package quarantine lists, redrives and drops the messages that processors gave up (P4.4).
package quarantine
