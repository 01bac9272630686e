.PHONY: test deps lint fmt ci

test: deps ## every module of the workspace, on real servers
	go test -race work

deps: ## what the tests need and this machine lacks
	@.ci/deps

lint: ## find bugs without running anything
	@.ci/lint

fmt:
	gofmt -w .

ci: ## what has to be green before a change goes in
	@.ci/run
