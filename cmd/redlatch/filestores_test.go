//go:build unix

package main

import "testing"

// TODO: filestore is on its way.
func fileStores(*testing.T) []string { return nil }
