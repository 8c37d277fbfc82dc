"""What `import twopass` offers to programs; import the names from there."""
