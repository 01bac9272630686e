// Package redlock tests package quorum on real Redis servers, and beside another library's
// Redlock.
package redlock
