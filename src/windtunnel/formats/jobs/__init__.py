"""Configurations of models and frameworks to model, plan, runtime and cluster: a folder for each family of formats."""
