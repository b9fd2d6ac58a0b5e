//! What a query gives: frames of columns, and rows of them in an order.

pub(crate) mod frame;
pub(crate) mod label_rows;
pub(crate) mod result_rows;
pub(crate) mod row_limit;
pub(crate) mod series_labels;
