//go:build unix

package main

func systemConfigDir() string { return "/etc/redlatch" }

// worldReadable: the mode of a file says who can read it.
const worldReadable = true

// platformText is what this system lacks.
const platformText = ""
