// Package verify holds redlatch against real servers, real processes and real faults,
// and judges it from outside: by a record that the product does not write.
//
// It is never released. The short forms run as tests, the long ones by
// go run ./verify/cmd/soak.
package verify
