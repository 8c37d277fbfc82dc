"""The regions of a page, as a layout detector finds them: values, labels, suppression, order and recall."""
