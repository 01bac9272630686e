package main

const runSystem = `
Stopped are then all descendants of the command, also those who have left its group
(setsid); only when it ends by itself may they live on. If rl-guard is killed, redlatch
says so and goes on alone. If both are killed at once the command runs on, and its
fence is what tells. With --no-guard the kernel kills the command if redlatch is
killed, but not what that has started.`
