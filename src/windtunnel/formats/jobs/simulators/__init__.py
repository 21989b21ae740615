"""Job and machine descriptions of analytical simulators: Calculon, SimuMax, llm-analysis."""
